"use strict";
// The y axis of a picture, for what is shown of it. The laws are those of `scale.rs`, which made
// the picture; a test holds both side by side.
const axis = (() => {
  const step = (span, parts) => {
    const raw = span / parts;
    const power = Number(`1e${Math.floor(Math.log10(raw))}`);
    const share = raw / power;
    return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
  };
  const near = (v, all) => all.find((t) => Math.abs(t - v) <= Math.abs(v) * 1e-9);
  const nice = (scale, [low, high], hasZero) => {
    if (scale === "log") {
      if (low === high) return [low / 10, high * 10];
      const marks = (v) => [1, 2, 5, 10].map((m) => Number(`${m}e${Math.floor(Math.log10(v))}`));
      const floor = (v) => near(v, marks(v)) ?? marks(v).reverse().find((t) => t <= v);
      const ceil = (v) => near(v, marks(v)) ?? marks(v).find((t) => t >= v);
      return [floor(low), ceil(high)];
    }
    const [a, b] = hasZero ? [Math.min(low, 0), Math.max(high, 0)] : [low, high];
    const by = step(b > a ? b - a : 1, 5);
    return [Math.floor(a / by + 1e-9) * by, Math.ceil(b / by - 1e-9) * by];
  };
  const linear = (low, high) => {
    const by = step(high - low, 5);
    const slack = by * 1e-9;
    const all = Array.from({ length: 20 }, (_, i) => (Math.ceil(low / by) + i) * by);
    return all.filter((t) => t <= high + slack).map((t) => (Math.abs(t) < slack ? 0 : t));
  };
  const log = (low, high) => {
    if (low <= 0) return [];
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const decades = last - first;
    const each = decades <= 3 ? [1, 2, 5] : [1];
    const every = decades <= 8 ? 1 : Math.floor(decades / 6);
    const all = [];
    for (let power = first; power <= last; power += every) {
      all.push(...each.map((m) => Number(`${m}e${power}`)));
    }
    return all.filter((t) => low * (1 - 1e-9) <= t && t <= high * (1 + 1e-9));
  };
  const ticks = (scale, [low, high]) => {
    if (!(Number.isFinite(low) && Number.isFinite(high) && low < high)) return [low];
    return scale === "log" ? log(low, high) : linear(low, high);
  };
  const number = (v) => {
    if (!Number.isFinite(v)) return "—";
    if (v === 0) return "0";
    const size = Math.abs(v);
    if (size < 1e-4 || size >= 1e15) return v.toExponential(2).replace("+", "");
    const digits = size >= 1000 ? 0 : Math.min(Math.max(3 - Math.floor(Math.log10(size)), 0), 7);
    const [whole, part = ""] = size.toFixed(digits).split(".");
    const groups = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") : whole;
    const rest = part.replace(/0+$/, "");
    return (v < 0 ? "−" : "") + groups + (rest && `.${rest}`);
  };
  const text = (v) => {
    const size = Math.abs(v);
    return size >= 1e6 ? `${number(v / 1e6)}M` : size >= 1e4 ? `${number(v / 1e3)}k` : number(v);
  };

  const px = (v) => v.toFixed(1).replace(/\.0$/, "");
  const all = (of, query) => Array.from(of.querySelectorAll(query));
  const values = (e) => e.dataset.v.split(" ").map(Number);
  const isShown = (e) => !e.closest(".off");

  // Where numbers stand, and which of them have a mark; nothing if there is nothing to show.
  const layout = (svg) => {
    const { shape } = svg.dataset;
    const { scale } = svg.closest(".plot").dataset;
    const [left, right, top, bottom] = svg.dataset.area.split(" ").map(Number);
    const points = all(svg, ".ser .pt").filter(isShown);
    if (!points.length) return null;
    const sums = new Map();
    if (shape === "stack") {
      for (const p of points) sums.set(p.dataset.x, (sums.get(p.dataset.x) ?? 0) + values(p)[0]);
    }
    const numbers = all(svg, "[data-v]:not(text)").filter(isShown).flatMap(values);
    const heights = numbers.concat(...sums.values())
      .filter((v) => Number.isFinite(v) && (scale === "lin" || v > 0));
    const least = shape === "lines" ? Infinity : 0;
    const low = heights.reduce((a, b) => Math.min(a, b), least);
    const high = heights.reduce((a, b) => Math.max(a, b), -Infinity);
    const hasZero = shape !== "lines" || low < 0.6 * high || low === high;
    let [from, to] = nice(scale, [low, high], hasZero);
    const marks = ticks(scale, [from, to]);
    const isFine = Number.isFinite(from) && Number.isFinite(to) && (scale === "lin" || from > 0);
    if (!isFine) [from, to] = [1, 10];
    if (!(to > from)) to = scale === "log" ? from * 10 : from + 1;
    const share = (v) => {
      if (scale === "lin") return (v - from) / (to - from);
      return v > 0 ? Math.log(v / from) / Math.log(to / from) : -1;
    };
    const at = (v) => bottom + Math.min(Math.max(share(v) || 0, -1), 2) * (top - bottom);
    return { shape, left, right, top, bottom, at, marks, sums };
  };

  const element = (svg, name, attrs, content = "") => {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attrs)) made.setAttribute(key, value);
    made.textContent = content;
    return made;
  };
  const drawAxis = (svg, { left, right, at, marks }) => {
    const group = svg.querySelector(".ax.y");
    const name = group.querySelector(".name");
    for (const e of all(group, "line, text:not(.name)")) e.remove();
    for (const t of marks) {
      const y = px(at(t));
      const line = { class: t === 0 ? "zero" : "grid", x1: px(left), x2: px(right), y1: y, y2: y };
      const label = { x: px(left - 6), y: px(at(t) + 4), "text-anchor": "end" };
      name.before(element(svg, "line", line), element(svg, "text", label, text(t)));
    }
  };
  const set = (e, attrs) => {
    for (const [key, value] of Object.entries(attrs)) e.setAttribute(key, px(value));
  };
  const drawPoints = (svg, { shape, at, sums }, first) => {
    const below = new Map();
    for (const p of all(svg, ".ser .pt")) {
      const [v] = values(p);
      if (shape === "lines") {
        p.setAttribute("transform", `translate(0 ${px(at(v) - first.at(v))})`);
        continue;
      }
      const base = shape === "stack" ? below.get(p.dataset.x) ?? 0 : Math.min(v, 0);
      const head = shape === "stack" ? base + v : Math.max(v, 0);
      if (isShown(p)) below.set(p.dataset.x, head);
      const [y, height] = [at(head), Math.max(at(base) - at(head), 0.8)];
      for (const rect of all(p, "rect")) set(rect, { y, height });
    }
    for (const e of all(svg, ".ser text.over")) set(e, { y: at(values(e)[0]) - 4 });
    for (const e of all(svg, ".sums text.over")) {
      const sum = sums.get(e.dataset.x) ?? 0;
      const said = all(svg, `.mark[data-x="${e.dataset.x}"] [data-v]`).filter(isShown);
      set(e, { y: at(Math.max(sum, ...said.flatMap(values))) - 4 });
      e.textContent = text(sum);
    }
  };
  const drawLines = (svg, { at, top, bottom }) => {
    for (const e of all(svg, "polyline[data-v]")) {
      const places = e.getAttribute("points").split(" ");
      const ys = values(e).map((v) => px(at(v)));
      e.setAttribute("points", places.map((p, i) => `${p.split(",")[0]},${ys[i]}`).join(" "));
    }
    for (const e of all(svg, ".whisker")) {
      const [a, b] = values(e).map((v) => px(at(v)));
      const [, x, l, r] = /^M(\S+) \S+V[^M]+M(\S+) [^H]+H([^M]+)M/.exec(e.getAttribute("d"));
      e.setAttribute("d", `M${x} ${a}V${b}M${l} ${a}H${r}M${l} ${b}H${r}`);
    }
    for (const e of all(svg, "line.said[data-v]")) {
      const y = at(values(e)[0]);
      set(e, { y1: y, y2: y });
    }
    for (const e of all(svg, "rect.band[data-v]")) {
      const [low, high] = values(e);
      const y = Math.max(at(high), top);
      set(e, { y, height: Math.max(Math.min(at(low), bottom) - y, 1.5) });
    }
  };

  // Where a picture's numbers stood when it was made.
  const firsts = new Map();
  const fit = (svg) => {
    if (!firsts.has(svg)) {
      const off = all(svg, ".off");
      for (const e of off) e.classList.remove("off");
      firsts.set(svg, layout(svg));
      for (const e of off) e.classList.add("off");
    }
    const now = layout(svg);
    if (!now) return;
    drawAxis(svg, now);
    drawPoints(svg, now, firsts.get(svg));
    drawLines(svg, now);
  };
  return { fit, nice, ticks, text };
})();
