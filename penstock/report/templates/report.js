/* Knows how the figures of a report come alive: hover, zoom, keys, and one range of dates for all of them.
   Without it the page says the same; what is printed are the still drawings. */
(() => {
  "use strict";
  const HEIGHT = 330, SECOND = 1000;
  const colour = css => `var(--${css.split(" ")[0]})`;

  /* As penstock.units writes quantities: by the ending of their names. */
  const digits = value => value === 0 ? "0" : Math.abs(value) >= 999.5 ? d3.format(",.0f")(value) : String(+value.toPrecision(3));
  const within = (value, units) => {
    const unit = units.find(([, size]) => Math.abs(value) >= 0.9995 * size) ?? units.at(-1);
    return `${digits(value / unit[1])} ${unit[0]}`;
  };
  const KiB = 1024;
  const RATES = [["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3], ["B/s", 1]];
  const BYTES = [["TiB", KiB ** 4], ["GiB", KiB ** 3], ["MiB", KiB ** 2], ["KiB", KiB], ["B", 1]];
  const SECONDS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["us", 1e-6]];
  const shown = (name, value) =>
    name.includes("_bytes_per_second") ? within(value, RATES)
    : name.endsWith("_bytes") ? within(value, BYTES)
    : name.includes("_seconds") ? within(value, SECONDS)
    : name.includes("_fraction") ? `${digits(100 * value)} %`
    : (name.includes("usd") ? "$" : "") + digits(value);

  const moment = seconds => new Date(SECOND * seconds);
  const placed = (axis, value) => axis.type === "utc" ? moment(value) : value;
  /* The fields of a map that hold anything, one by one. */
  const shade = (layer, value) => {
    const most = layer.most ??= d3.max(layer.values, row => d3.max(row));
    return value <= 0 ? 0 : layer.counted ? 0.15 + 0.85 * Math.log1p(value) / Math.log1p(most) : (value / most) ** 2;
  };
  const fields = (figure, layer) => layer.values.flatMap((row, m) => row.map((value, n) => {
    const [x1, x2, y1, y2] = [layer.x[n], layer.x[n + 1], layer.y[m], layer.y[m + 1]];
    const [x, y] = [[figure.x, x1, x2], [figure.y, y1, y2]].map(([axis, low, high]) => axis.type === "utc"
      ? `${day(moment(low))} ${clock(moment(low))}` : `about ${shown(axis.name, axis.type === "log" ? Math.sqrt(low * high) : (low + high) / 2)}`);
    return { kind: "grid", x1: Math.max(x1, figure.x.low), x2: Math.min(x2, figure.x.high), y1: Math.max(y1, figure.y.low), y2: Math.min(y2, figure.y.high), share: shade(layer, value),
      title: `${x}, ${y}: ${shown(layer.name, value)}${layer.words ? ` ${layer.words}` : ""}` };
  })).filter(field => field.share > 0 && field.y2 > field.y1 && field.x2 > field.x1);
  const rows = layer => d3.range((layer.x ?? layer.x1).length).map(n =>
    Object.fromEntries(Object.entries(layer).map(([name, column]) => [name, Array.isArray(column) ? column[n] : column])));

  const scale = (axis, domain) => ({ type: axis.type, axis: null, domain: (domain ?? [axis.low, axis.high]).map(v => placed(axis, v)) });
  const day = d3.utcFormat("%-d %b"), clock = d3.utcFormat("%H:%M");

  /* The ticks of the still drawing; where it is zoomed, a few round ones. Their texts are given one by one, because a
     format for a logarithmic scale leaves some of them out. */
  const axisOf = (side, axis, domain) => {
    const [drawn, grid] = side === "x" ? [Plot.axisX, Plot.gridX] : [Plot.axisY, Plot.gridY];
    const options = { label: axis.title };
    if (domain === undefined) {
      const known = new Map(axis.ticks.map((tick, n) => [+placed(axis, tick), axis.texts[n]]));
      const ticks = axis.ticks.map(tick => placed(axis, tick));
      return [grid(ticks), drawn(ticks, { ...options, text: tick => known.get(+tick) })];
    }
    const [low, high] = domain, isDated = axis.type === "utc";
    const ticks = isDated ? d3.utcTicks(moment(low), moment(high), 5) : d3.ticks(low, high, 5);
    const text = isDated ? tick => +tick % (86400 * SECOND) ? clock(tick) : day(tick) : tick => shown(axis.name, tick);
    return [grid(ticks), drawn(ticks, { ...options, text })];
  };

  const marksOf = (figure, clip) => figure.layers.flatMap(layer => {
    const data = layer.kind === "grid" ? fields(figure, layer) : rows(layer), x = d => placed(figure.x, d.x), x1 = d => placed(figure.x, d.x1), x2 = d => placed(figure.x, d.x2);
    const isAside = layer.css.includes("aside");
    switch (layer.kind) {
      case "band": return [Plot.areaY(data, { x, y1: "low", y2: "high", fill: "var(--band)", clip: "frame" })];
      case "line": case "stairs":
        return [Plot.line(data, { x, y: "y", className: `layer ${layer.css}`, curve: layer.kind === "stairs" ? "step-after" : "linear",
          stroke: "currentColor", clip })];
      case "mark": return [
        Plot.ruleX(data, { x, className: `layer ${layer.css}`, stroke: "currentColor", clip }),
        Plot.text(data, { x, text: "text", frameAnchor: "top", dy: 12 * layer.row - 18, fill: "currentColor", textAnchor: "middle",
          className: `name ${layer.css}`, clip: false })];
      case "whisker": return [Plot.link(data, { x1, x2, y1: "y1", y2: "y2", className: "layer whisker", stroke: "currentColor", clip })];
      case "dot": return [Plot.dot(data, { x, y: "y", r: 3.5, fill: colour(layer.css), fillOpacity: isAside ? 0.2 : 0.9,
        stroke: isAside ? colour(layer.css) : "var(--paper)", strokeWidth: 0.8, clip })];
      case "cross": return [Plot.dot(data, { x, y: "y", r: 4.5, symbol: "times", stroke: colour(layer.css), strokeWidth: 1.8, clip })];
      case "bar": return [Plot.rect(data, { x1, x2, y1: "y1", y2: "y2", fill: colour(layer.css.replace("b", "c")), clip })];
      case "grid": return [Plot.rect(data, { x1, x2, y1: "y1", y2: "y2", fill: colour(layer.css), fillOpacity: "share", inset: 0, clip })];
    }
    return [];
  });

  /* Whatever can be pointed at, in the order of x. */
  const targetsOf = figure => d3.sort(figure.layers.flatMap(l => l.kind === "grid" ? fields(figure, l) : l.told ? rows(l).map(d => ({ ...d, title: figure.titles[d.told] })) : []).map(d => ({
    ...d, px: placed(figure.x, d.x ?? (d.x1 + d.x2) / 2), py: d.y ?? (d.kind === "grid" ? (d.y1 + d.y2) / 2 : d.y2) })), d => +d.px);

  class Live {
    constructor(element, figure) {
      Object.assign(this, { element, figure, targets: targetsOf(figure), domain: undefined, at: -1 });
      element.tabIndex = 0;
      element.setAttribute("role", "group");
      element.setAttribute("aria-label", `${figure.title}. Arrow keys walk through what was measured, plus and minus zoom, Escape shows all.`);
      element.addEventListener("keydown", event => this.press(event));
      element.addEventListener("dblclick", () => this.zoom(undefined));
      new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(element);
    }
    get isDated() { return this.figure.x.type === "utc"; }
    draw() {
      const width = this.element.clientWidth;
      if (!width) return;
      const { figure, targets } = this, isZoomed = this.domain !== undefined;
      const one = targets[this.at];
      const tip = { x: "px", y: "py", title: "title", fill: "var(--paper)", stroke: "var(--faint)", lineWidth: 34 };
      const plot = Plot.plot({
        width, height: HEIGHT, marginLeft: 76, marginTop: 44, marginBottom: 42, marginRight: 16,
        style: { background: "none", color: "inherit", fontSize: "12px", overflow: "visible" },
        x: scale(figure.x, this.domain), y: scale(figure.y), ariaLabel: figure.title,
        marks: [...axisOf("x", figure.x, this.domain), ...axisOf("y", figure.y), ...marksOf(figure, isZoomed ? "frame" : undefined),
          Plot.ruleY([figure.y.low], { stroke: "currentColor" }),
          ...(targets.length ? [Plot.tip(targets, Plot.pointer(tip))] : []),
          ...(one ? [Plot.tip([one], tip)] : [])],
      });
      plot.setAttribute("role", "img");
      for (const g of plot.querySelectorAll("g[aria-label]")) { g.dataset.mark = g.getAttribute("aria-label"); g.removeAttribute("aria-label"); }
      this.brush(plot, width);
      this.element.replaceChildren(plot);
    }
    brush(plot, width) {
      const x = plot.scale("x");
      const brush = d3.brushX().extent([[76, 44], [width - 16, HEIGHT - 42]]).on("end", ({ selection }) => {
        if (!selection || selection[1] - selection[0] < 8) return;
        this.zoom(selection.map(pixel => +x.invert(pixel)).map(v => this.isDated ? v / SECOND : v));
      });
      d3.select(plot).append("g").attr("class", "brush").call(brush).select(".overlay").attr("cursor", "crosshair");
    }
    zoom(domain) {
      const all = this.isDated ? figures.filter(f => f.isDated) : [this];
      for (const each of all) { each.domain = domain; each.draw(); }
    }
    press(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (step !== undefined && this.targets.length) {
        this.at = Math.max(0, Math.min(this.targets.length - 1, this.at + step));
        this.draw();
        told.textContent = this.targets[this.at].title;
      } else if (event.key === "+" || event.key === "-") {
        const [low, high] = this.domain ?? [this.figure.x.low, this.figure.x.high];
        const isLog = this.figure.x.type === "log", to = isLog ? Math.log : v => v, from = isLog ? Math.exp : v => v;
        const one = this.targets[this.at], factor = event.key === "+" ? 0.25 : 1;
        const centre = one ? to(this.isDated ? +one.px / SECOND : one.px) : (to(low) + to(high)) / 2;
        const reach = (to(high) - to(low)) * factor;
        this.zoom([from(centre - reach), from(centre + reach)]);
      } else if (event.key === "Escape") { this.at = -1; this.zoom(undefined); told.textContent = ""; }
      else return;
      event.preventDefault();
    }
  }

  const told = document.createElement("p");
  told.className = "unseen";
  told.setAttribute("role", "status");
  document.querySelector("main").append(told);
  const figures = [];
  const seen = new IntersectionObserver(entries => entries.filter(e => e.isIntersecting).forEach(({ target }) => {
    seen.unobserve(target);
    const holder = document.createElement("div");
    holder.className = "live";
    target.querySelector(".still").before(holder);
    target.classList.add("is-live");
    const titles = [...target.querySelectorAll(".still :is(circle, path, rect) > title")].map(title => title.textContent);
    figures.push(new Live(holder, { ...JSON.parse(target.querySelector("script").textContent), titles }));
  }), { rootMargin: "300px" });
  document.querySelectorAll("figure[data-live]").forEach(figure => seen.observe(figure));

  /* A button beside each setting that can be copied. */
  if (navigator.clipboard) document.querySelectorAll("pre[data-copy]").forEach(pre => {
    const button = document.createElement("button");
    button.textContent = "Copy";
    button.type = "button";
    button.addEventListener("click", async () => { await navigator.clipboard.writeText(pre.textContent); button.textContent = "Copied"; });
    pre.before(button);
  });
})();
