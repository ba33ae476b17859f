// SPDX-License-Identifier: Apache-2.0
// Wires the controls of a report to the libraries that draw: Plotly and DataTables.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const element = id => document.getElementById(id);
  const narrow = matchMedia("(max-width: 600px)").matches;
  const config = {  // without buttons that send data anywhere
    responsive: true, displaylogo: false, showSendToCloud: false,
    plotlyServerURL: ""};
  let shown = new Set(data.runs.map((_, index) => index));  // what the table's filter lets through

  function layout(xTitle, yTitle, more) {
    return {
      font: {family: "system-ui, sans-serif", size: 13, color: "#1a1a1a"},
      margin: {l: 70, r: 20, t: 30, b: 60}, height: narrow ? 460 : 440, hovermode: "closest",
      xaxis: {title: {text: xTitle}, automargin: true},
      yaxis: {title: {text: yTitle}, automargin: true},
      legend: narrow ? {orientation: "h", y: -0.4} : {}, ...more};
  }

  function withLegend(lines, shape) {  // below the axis if it is long, so that the axis is not short
    const names = new Set(lines.filter(line => line.showlegend).map(line => line.name));
    if (narrow || Math.max(0, ...Array.from(names, name => name.length)) <= 40) return shape;
    return {...shape, height: shape.height + 20 * names.size,
            legend: {orientation: "h", y: -110 / shape.height, yanchor: "top"}};
  }

  function smoothed(values, weight) {  // exponential mean, corrected for its start at nothing
    let mean = 0, mass = 0;
    return values.map(value => {
      if (value === null) return null;
      mean = weight * mean + (1 - weight) * value;
      mass = weight * mass + (1 - weight);
      return mean / mass;
    });
  }

  // Equal lines and points of other colours cover each other: the first is drawn the largest.
  function equalAfter(items, isEqual, color) {
    return items.map((item, index) => new Set(items.slice(index + 1).filter(
      other => isEqual(item, other) && color(other) !== color(item)).map(color)).size);
  }

  function areNear(a, b) {  // so that they share a place on any axis
    return a === b || typeof a === "number" && typeof b === "number"
      && Math.abs(a - b) <= 1e-3 * Math.max(Math.abs(a), Math.abs(b));
  }

  function withAllSeen(lines) {
    const texts = new Map(lines.map(line => [line, JSON.stringify([line.x, line.y])]));
    equalAfter(lines, (a, b) => texts.get(a) === texts.get(b), line => line.line.color).forEach(
      (count, index) => {
        lines[index].line.width = 2 + 3 * count;
        lines[index].marker = {size: 6 + 4 * count};
      });
    return lines;
  }

  function drawCurves() {
    const metric = element("curve-metric").value, weight = Number(element("smoothing").value);
    element("smoothing-value").value = weight.toFixed(2);
    const named = new Set();
    const lines = (data.curves[metric] || []).filter(([run]) => shown.has(run)).map(
      ([run, steps, values]) => {
        const {label, group, color, dash} = data.runs[run], first = !named.has(group);
        named.add(group);
        return {
          x: steps, y: smoothed(values, weight), name: group, legendgroup: group, showlegend: first,
          mode: steps.length > 20 ? "lines" : "lines+markers", line: {color, dash, width: 2},
          hovertemplate: `${label}<br>step %{x}: %{y:.6g}<extra></extra>`};
      });
    for (const line of lines) {  // n in the legend: a setting has a line for every seed
      const count = lines.filter(other => other.legendgroup === line.legendgroup).length;
      if (data.has_seeds) line.name = `${line.legendgroup} (n = ${count})`;
    }
    Plotly.react("curve-plot", withAllSeen(lines), withLegend(lines, layout("global step", metric, {
      showlegend: true, uirevision: metric,
      yaxis: {title: {text: metric}, automargin: true,
              type: element("curve-log").checked ? "log" : "linear"}})), config);
  }

  function drawTables() {
    const {measured, curves} = data.tables[element("table-statistic").value];
    element("table-steps").textContent = measured;
    const several = shown.size > 1, lines = [];
    for (const {value: table} of element("table-names").selectedOptions) {
      if (!curves[table]) continue;
      const {curve, color, dash} = curves[table];
      for (const [run, x, y] of data.curves[curve] || []) {
        if (!shown.has(run)) continue;
        const {label, color: colorOfRun} = data.runs[run];
        lines.push({
          x, y, name: several ? `${table}, ${label}` : table, showlegend: true,
          mode: x.length > 20 ? "lines" : "lines+markers",
          line: {color: several ? colorOfRun : color, dash, width: 2},
          hovertemplate: `${table}, ${label}<br>step %{x}: %{y:.6g}<extra></extra>`});
      }
    }
    const statistic = element("table-statistic").value.replaceAll("_", " ");
    Plotly.react("table-plot", withAllSeen(lines),
                 withLegend(lines, layout("global step", statistic)), config);
  }

  function drawScatter() {
    const x = element("scatter-x").value, y = element("scatter-y").value;
    const runs = data.runs.filter((run, index) => shown.has(index) && run.values[x] !== undefined
      && run.values[y] !== undefined);
    const numbers = runs.every(run => typeof run.values[x] === "number");
    const covered = equalAfter(runs, (a, b) => [x, y].every(
      name => areNear(a.values[name], b.values[name])), run => run.color);
    Plotly.react("scatter-plot", [{
      x: runs.map(run => run.values[x]), y: runs.map(run => run.values[y]), mode: "markers",
      type: "scatter", text: runs.map(run => run.label),
      marker: {color: runs.map(run => run.color),
               size: covered.map(count => 9 + 6 * count), opacity: 1},
      hovertemplate: `%{text}<br>${x}: %{x}<br>${y}: %{y:.6g}<extra></extra>`}],
    layout(x, y, {
      xaxis: {title: {text: `${x} (n = ${runs.length} runs)`}, automargin: true,
              type: !numbers ? "category" : element("scatter-log").checked ? "log" : "linear"}}),
    config);
  }

  function isWide(values) {  // so that only a logarithmic axis tells them apart
    return values.every(value => typeof value === "number" && value > 0)
      && Math.max(...values) / Math.min(...values) >= 100;
  }

  function chooseAxis() {
    const name = element("scatter-x").value;
    element("scatter-log").checked = isWide(
      data.runs.map(run => run.values[name]).filter(value => value !== undefined));
    drawScatter();
  }

  function dimension(name, runs) {
    const values = runs.map(run => run.values[name]);
    if (!values.every(value => typeof value === "number")) {
      const texts = [...new Set(values.map(String))];
      return {label: name, values: values.map(value => texts.indexOf(String(value))),
              tickvals: texts.map((_, index) => index), ticktext: texts};
    }
    const least = Math.min(...values), most = Math.max(...values);
    if (!isWide(values)) return {label: name, values};
    const powers = [];
    for (let power = Math.floor(Math.log10(least)); power <= Math.ceil(Math.log10(most)); power++) {
      powers.push(power);
    }
    return {label: name, values: values.map(Math.log10), tickvals: powers,
            ticktext: powers.map(power => String(Number(`1e${power}`)))};
  }

  function drawParallel() {
    const names = data.dimensions;
    const runs = data.runs.filter((run, index) => shown.has(index)
      && names.every(name => run.values[name] !== undefined));
    element("parallel-count").textContent =
      `n = ${runs.length} of ${data.runs.length} runs have all of these values.`;
    if (!document.createElement("canvas").getContext("webgl")) {
      element("parallel-plot").textContent = "This figure needs WebGL, which is not available.";
      return;
    }
    if (!runs.length) return Plotly.purge("parallel-plot");
    const colours = runs.map(run => run.values[names[names.length - 1]]);
    Plotly.react("parallel-plot", [{
      type: "parcoords", dimensions: names.map(name => dimension(name, runs)),
      line: {color: colours, colorscale: "Viridis", showscale: false}}],
    {font: {family: "system-ui, sans-serif", size: 12, color: "#1a1a1a"}, height: 420,
     width: Math.max(element("parallel-plot").clientWidth, 130 * names.length),
     margin: {l: 80, r: 60, t: 60, b: 40}}, {...config, responsive: false});
  }

  function drawAll() {
    if (element("curve-plot")) drawCurves();
    if (element("table-plot")) drawTables();
    if (element("scatter-plot")) { drawScatter(); drawParallel(); }
  }

  function drawFirst() {
    drawAll();
    if (element("scatter-plot")) chooseAxis();
  }

  async function sortAndFilter() {
    const bytes = Uint8Array.from(atob(element("tables-library").textContent),
                                  letter => letter.charCodeAt(0));
    const address = URL.createObjectURL(new Blob([bytes], {type: "text/javascript"}));
    const {ITable} = await import(address);
    URL.revokeObjectURL(address);
    const table = new ITable(element("runs"), {
      order: [], pageLength: 25, lengthMenu: [25, 100, {label: "all", value: -1}],
      language: {search: "Filter, the figures too:"}});
    const api = typeof table.rows === "function" ? table : table.dt || table.api;
    api.on("search", () => {
      shown = new Set(api.rows({search: "applied"}).nodes().toArray().map(
        row => Number(row.dataset.run)));
      drawAll();
    });
    document.documentElement.dataset.explorer = "ready";
  }

  for (const [id, draw] of [
    ["table-statistic", drawTables], ["table-names", drawTables], ["curve-metric", drawCurves], ["smoothing", drawCurves], ["curve-log", drawCurves],
    ["scatter-x", chooseAxis], ["scatter-y", drawScatter], ["scatter-log", drawScatter]]) {
    if (element(id)) element(id).addEventListener("input", draw);
  }
  drawFirst();
  sortAndFilter();
})();
