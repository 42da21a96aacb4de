//! HTML that is well formed because it is written element by element.
//!
//! Invariants: every element that is opened is closed; text and values of attributes are escaped.
//!             Only [`Html::style`], [`Html::script`] and [`Html::data`] write what is not text.

use std::fmt::Write;

/// A page, or a part of one, as far as it is written.
#[derive(Debug, Default)]
pub struct Html {
    out: String,
}

/// Attributes of an element: name and value.
pub type Attrs<'a> = &'a [(&'a str, &'a str)];

/// A string takes what is written to it.
const LINE: &str = "a string takes it";

impl Html {
    /// Nothing yet.
    pub fn new() -> Html {
        Html::default()
    }

    /// What was written.
    pub fn finish(self) -> String {
        self.out
    }

    /// What stands before the first element.
    pub fn doctype(&mut self) {
        self.out.push_str("<!DOCTYPE html>\n");
    }

    /// An element, and in it what `inside` writes.
    pub fn el(&mut self, name: &str, attrs: Attrs<'_>, inside: impl FnOnce(&mut Html)) {
        self.open(name, attrs);
        inside(self);
        write!(self.out, "</{name}>").expect(LINE);
    }

    /// An element with text in it.
    pub fn leaf(&mut self, name: &str, attrs: Attrs<'_>, text: &str) {
        self.el(name, attrs, |h| h.text(text));
    }

    /// An element that has no end (`meta`, `br`, `input`).
    pub fn void(&mut self, name: &str, attrs: Attrs<'_>) {
        self.open(name, attrs);
    }

    /// An element of an SVG picture that has nothing in it.
    pub fn shape(&mut self, name: &str, attrs: Attrs<'_>) {
        self.open(name, attrs);
        self.out.pop();
        self.out.push_str("/>");
    }

    /// Text.
    pub fn text(&mut self, text: &str) {
        escape(text, &mut self.out);
    }

    /// A line break of the source, so that it can be read and compared.
    pub fn line(&mut self) {
        self.out.push('\n');
    }

    /// A style sheet of ours.
    pub fn style(&mut self, css: &'static str) {
        self.out.push_str("<style>\n");
        self.out.push_str(css);
        self.out.push_str("</style>\n");
    }

    /// A program of ours.
    pub fn script(&mut self, js: &'static str) {
        self.out.push_str("<script>\n");
        self.out.push_str(js);
        self.out.push_str("</script>\n");
    }

    /// A document that programs read; `<` is written so that no text in it ends the element.
    pub fn data(&mut self, id: &str, document: &serde_json::Value) {
        self.open("script", &[("type", "application/json"), ("id", id)]);
        self.out.push_str(&document.to_string().replace('<', "\\u003c"));
        self.out.push_str("</script>\n");
    }

    fn open(&mut self, name: &str, attrs: Attrs<'_>) {
        debug_assert!(is_name(name), "{name}");
        self.out.push('<');
        self.out.push_str(name);
        for (key, value) in attrs {
            debug_assert!(is_name(key), "{key}");
            write!(self.out, " {key}=\"").expect(LINE);
            escape(value, &mut self.out);
            self.out.push('"');
        }
        self.out.push('>');
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Writes text so that it is text in an element and in a value. A control character that HTML does
/// not have becomes U+FFFD.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// A `data:` address of a text, for a link that saves it as a file.
pub fn data_address(media: &str, text: &str) -> String {
    let mut out = format!("data:{media};charset=utf-8,");
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-_.!~*(),;:@/+".contains(&b) {
            out.push(char::from(b));
        } else {
            write!(out, "%{b:02X}").expect(LINE);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_cannot_become_markup() {
        let mut h = Html::new();
        h.leaf("p", &[("title", "a \"b\" <c>")], "1 < 2 && \u{1} </p><script>");
        assert_eq!(
            h.finish(),
            "<p title=\"a &quot;b&quot; &lt;c&gt;\">1 &lt; 2 &amp;&amp; \u{fffd} \
             &lt;/p&gt;&lt;script&gt;</p>"
        );
    }

    #[test]
    fn a_document_in_the_page_cannot_end_its_element() {
        let mut h = Html::new();
        let document = serde_json::json!({ "a": "</script><b>" });
        h.data("d", &document);
        let text = h.finish();
        assert_eq!(text.matches("</script>").count(), 1, "{text}");
        let inner = text.split_once('>').and_then(|(_, t)| t.rsplit_once("</script>"));
        let read: serde_json::Value =
            serde_json::from_str(inner.expect("an element").0).expect("it is JSON");
        assert_eq!(read, document);
    }

    #[test]
    fn an_address_keeps_every_byte() {
        assert_eq!(
            data_address("text/csv", "a,b\n쓰\""),
            "data:text/csv;charset=utf-8,a,b%0A%EC%93%B0%22"
        );
    }
}
