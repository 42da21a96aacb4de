// What the page can do beyond being read: tell what is pointed at, hide series, switch scales, sort
// and filter claims, change between light and dark, save its data. Without it everything is there.
(() => {
  const all = (of, query) => Array.from(of.querySelectorAll(query));
  const root = document.documentElement;
  root.classList.add("has-js");

  // Light and dark. Where a file may keep nothing (some browsers, from disk), the choice is for
  // this visit.
  const keep = {
    get: () => { try { return localStorage.getItem("writepath-theme"); } catch { return null; } },
    set: (v) => { try { localStorage.setItem("writepath-theme", v); } catch { /* For this visit. */ } },
  };
  const stored = keep.get();
  if (stored === "dark" || stored === "light") root.dataset.theme = stored;
  const isDark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep.set(root.dataset.theme);
  });

  // What is pointed at. A title would also be shown by the browser, so it becomes ours.
  const tip = document.getElementById("tip");
  const points = new Map();
  for (const svg of all(document, ".plot svg")) {
    const list = all(svg, ".pt");
    for (const p of list) {
      const title = p.querySelector("title");
      p.dataset.tip = title.textContent;
      p.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    points.set(svg, list);
  }
  let near = null;
  const leave = () => {
    if (near) near.classList.remove("near");
    near = null;
    tip.hidden = true;
  };
  const distance = (box, x, y) => {
    const dx = Math.max(box.left - x, 0, x - box.right);
    const dy = Math.max(box.top - y, 0, y - box.bottom);
    return Math.hypot(dx, dy);
  };
  const show = (event) => {
    const list = points.get(event.currentTarget);
    let best = null;
    let least = 26;
    for (const p of list) {
      if (p.closest(".off")) continue;
      const box = p.getBoundingClientRect();
      const d = distance(box, event.clientX, event.clientY) + Math.min(box.width * box.height, 4e4) / 1e6;
      // What is drawn later lies on top.
      if (d <= least) { least = d; best = p; }
    }
    if (best !== near) leave();
    if (!best) return;
    near = best;
    best.classList.add("near");
    const lines = best.dataset.tip.split("\n");
    tip.textContent = "";
    tip.append(Object.assign(document.createElement("b"), { textContent: lines[0] }));
    if (lines.length > 1) tip.append("\n" + lines.slice(1).join("\n"));
    tip.hidden = false;
    const box = best.getBoundingClientRect();
    const width = tip.offsetWidth;
    const middle = Math.min(Math.max(box.left, event.clientX - 30), box.right, event.clientX + 30);
    const left = Math.min(Math.max(8, middle - width / 2), root.clientWidth - width - 8);
    const above = Math.max(box.top, event.clientY - 14) - tip.offsetHeight - 8;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above < 8 ? Math.min(box.bottom, event.clientY + 24) + 8 : above) + scrollY}px`;
  };
  for (const svg of points.keys()) {
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", leave);
  }

  // Series and scales.
  for (const figure of all(document, "figure.fig")) {
    for (const key of all(figure, ".legend button")) {
      key.addEventListener("click", () => {
        const on = key.getAttribute("aria-pressed") !== "true";
        key.setAttribute("aria-pressed", String(on));
        for (const g of all(figure, `.plot [data-s="${key.dataset.s}"]`)) g.classList.toggle("off", !on);
        leave();
        for (const svg of all(figure, ".plot svg[data-area]")) axis.fit(svg);
      });
    }
    for (const button of all(figure, ".switch button")) {
      button.addEventListener("click", () => {
        for (const b of all(figure, ".switch button")) b.setAttribute("aria-pressed", String(b === button));
        for (const p of all(figure, ".plot")) p.hidden = p.dataset.scale !== button.dataset.scale;
        leave();
      });
    }
  }

  // Claims: filter and sort.
  for (const box of all(document, ".claimbox")) {
    const bar = box.querySelector(".filter");
    const input = bar.querySelector("input");
    const rows = all(box, "tbody tr");
    const buttons = all(bar, "button");
    let verdict = "";
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        const fits = (!verdict || row.dataset.v === verdict) && words.every((w) => text.includes(w));
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      }
      bar.querySelector(".count").textContent =
        bar.dataset.shown.replace("{0}", shown).replace("{1}", rows.length);
    };
    for (const b of buttons) {
      b.addEventListener("click", () => {
        verdict = b.dataset.v;
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === b));
        apply();
      });
    }
    input.addEventListener("input", apply);
    apply();
  }
  const order = (cell) => {
    const key = cell.dataset.k;
    if (key === undefined) return cell.textContent;
    return key === "" ? Infinity : Number(key);
  };
  for (const table of all(document, "table.claims")) {
    const body = table.tBodies[0];
    const heads = all(table, "thead th");
    heads.forEach((head, n) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const h of heads) h.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const compare = (a, b) => {
          const [x, y] = [order(a.cells[n]), order(b.cells[n])];
          return typeof x === "string" ? x.localeCompare(y, "en") : x < y ? -1 : x > y ? 1 : 0;
        };
        const sorted = Array.from(body.rows).sort((a, b) => (down ? compare(b, a) : compare(a, b)));
        body.append(...sorted);
      });
    });
  }
  // A link to a claim shows it, whatever is filtered.
  addEventListener("hashchange", () => {
    const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (at && at.hidden) { at.hidden = false; at.scrollIntoView(); }
  });

  // The data, as a file.
  document.getElementById("json").addEventListener("click", () => {
    const blob = new Blob([document.getElementById("data").textContent], { type: "application/json" });
    const link = Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(blob), download: "writepath-report.json",
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
