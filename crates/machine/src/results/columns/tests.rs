use std::fs::File;

use wp_base::event::Record;

use super::*;
use crate::results::tests::every_kind;

fn written(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(records, &mut |_| None, &mut bytes).expect("memory takes it");
    bytes
}

fn read_back(bytes: &[u8]) -> std::io::Result<Vec<Record>> {
    parse(bytes.to_vec(), "events.parquet").map(|(records, _)| records)
}

#[test]
fn classes_are_those_of_their_events() {
    let records = every_kind();
    let mut class = |r: &Record| match r.event {
        wp_base::event::Event::Block { .. } => Some("journal*5".into()),
        _ => None,
    };
    let mut bytes = Vec::new();
    write(&records, &mut class, &mut bytes).expect("memory takes it");
    let (read, classes) = parse(bytes, "events.parquet").expect("read");
    assert_eq!(read, records);
    assert_eq!(classes, Classes::from([(0, "journal*5".to_owned())]));
}

#[test]
fn every_kind_of_event_survives_and_equal_events_are_equal_bytes() {
    let records = every_kind();
    let bytes = written(&records);
    assert_eq!(read_back(&bytes).expect("read"), records);
    assert_eq!(bytes, written(&records));
    let none = written(&[]);
    assert_eq!(read_back(&none).expect("read"), []);
}

#[test]
fn every_kind_is_in_the_table_of_kinds() {
    let records = every_kind();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.parquet");
    std::fs::write(&path, written(&records)).expect("written");
    let mut found = 0;
    for (kind, _) in EVENT_KINDS {
        let file = File::open(&path).expect("there");
        let n = read(file, "", &|k| k == *kind).expect("read").0.len();
        assert!(n > 0, "{kind}");
        found += n;
    }
    assert_eq!(found, records.len());
}

#[test]
fn several_row_groups_are_read_in_order() {
    let one = every_kind();
    let records: Vec<Record> = (0..GROUP as u64 + 10)
        .map(|n| Record { at: wp_base::Time(n), ..one[n as usize % one.len()].clone() })
        .collect();
    assert_eq!(read_back(&written(&records)).expect("read"), records);
}

#[test]
fn damaged_bytes_are_an_error_that_names_the_file() {
    let bytes = written(&every_kind());
    let mut refused = 0;
    for at in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        match read_back(&damaged) {
            // A statistic, or a name that nobody reads.
            Ok(_) => {}
            Err(e) => {
                assert!(e.to_string().starts_with("events.parquet: "), "{e}");
                refused += 1;
            }
        }
    }
    assert!(refused > 50, "{refused}");
    for end in [0, 3, 4, 100, bytes.len() - 1] {
        assert!(read_back(&bytes[..end]).is_err(), "{end}");
    }
}

#[test]
fn the_page_has_the_columns() {
    const BEGIN: &str = "<!-- columns: begin -->\n";
    const END: &str = "<!-- columns: end -->";
    let mut table = String::from("\n| column | of each event |\n|---|---|\n");
    for column in COLUMNS {
        table += &format!("| `{}` | {} |\n", column.name, column.about);
    }
    table += "\n| `event` | an event of this kind is |\n|---|---|\n";
    for (kind, what) in EVENT_KINDS {
        table += &format!("| `{kind}` | {what} |\n");
    }
    let path = crate::testing::repository("docs/results.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (head, rest) = page.split_once(BEGIN).expect("the page has the mark");
    let (_, tail) = rest.split_once(END).expect("the page has the mark");
    let wanted = format!("{head}{BEGIN}{table}\n{END}{tail}");
    if crate::testing::blessing() && page != wanted {
        std::fs::write(&path, &wanted).expect("written");
    }
    let there = std::fs::read_to_string(&path).expect("the page");
    assert!(there == wanted, "docs/results.md: WRITEPATH_BLESS=1 writes the columns");
}
