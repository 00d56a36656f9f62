// The inspector: source, graph, loop nests and machine code of one model, with one selection.
//
// A selection is a set of nodes of the program as compiled. All panes show what belongs to them. Nodes as traced are connected to them by
// their lines. The model is described in program.py and model.py.
"use strict";
(() => {
  const WAYS = ["forward", "backward", "tangent"];
  const MOST_FOUND = 60; // search results
  const MOST_DRAWN = 400; // boxes that are drawn one by one; more are drawn as one shape, without text
  const PER_ROW = 14; // boxes beside each other; wider layers are folded
  const MOST_ROWS = 40; // rows of boxes below each other
  const BOX = 38, STEP = 74, GAP = 22, COLUMN_GAP = 90;

  const $ = (id) => document.getElementById(id);
  let model = JSON.parse($("model").textContent);
  let program = null; // the one that is shown
  let lineRows = new Map(); // "file:line" -> row of the source
  let chosen = new Set(); // nodes as compiled
  let chosenLines = new Set(); // "file:line"
  let chosenTraced = new Set(); // nodes as traced
  let shownNest = -1;
  let graph = null; // the layout that is drawn
  let opened = new Set(); // groups that are drawn as nodes
  let scope = []; // the loops whose bodies are open, outermost first
  let camera = { x: 0, y: 0, scale: 1 };
  let isMoved = false; // whether the user has moved the camera
  let current = -1; // the box with the keyboard's focus

  // Text

  const three = (x) => (x >= 99.95 ? x.toFixed(0) : x >= 9.995 ? x.toFixed(1) : x.toFixed(2));
  function scaled(x, units) {
    for (const [unit, factor] of units) if (x >= 0.9995 * factor) return `${three(x / factor)} ${unit}`.trim();
    return null;
  }
  function duration(s) {
    if (s === null || s === undefined) return "";
    return scaled(s, [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) ?? (s > 0 ? `${three(s * 1e9)} ns` : "0");
  }
  const bytes = (n) => scaled(n, [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) ?? `${n.toFixed(0)} B`;
  const count = (n) => scaled(n, [["G", 1e9], ["M", 1e6], ["k", 1e3]]) ?? n.toFixed(0);
  const percent = (x) => `${(100 * x).toFixed(1)} %`;
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  const INSIDE = { procedure: "code", procedure_vjp: "code", if: "branches", cond: "branches", switch: "branches" };
  const MEASURES = { seconds: duration, operations: count, moved: bytes };

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") made.className = value;
      else if (value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }
  function svg(tag, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const WORDS = new Set(("and as assert async await break case class continue def del elif else except finally for from global if import in is " +
    "lambda match None not or pass raise return True False try while with yield").split(" "));
  const TOKEN = /(#.*$)|("""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;
  function coloured(text) {
    const parts = [];
    let last = 0;
    for (const match of text.matchAll(TOKEN)) {
      const kind = match[1] ? "comment" : match[2] ? "string" : match[3] ? "num" : WORDS.has(match[4]) ? "word" : null;
      if (!kind) continue;
      parts.push(text.slice(last, match.index), element("span", { class: kind }, match[0]));
      last = match.index + match[0].length;
    }
    parts.push(text.slice(last));
    return parts;
  }

  const fileName = (file) => (file >= 0 ? model.files[file].name : "");
  const placeName = (file, line) => (file >= 0 && line ? `${fileName(file)}:${line}` : "");
  const lineText = (file, line) => (file >= 0 ? (model.files[file].lines[line - model.files[file].first] ?? "") : "");
  const keyOf = (row) => `${row.file}:${row.line}`;
  const compiledNodes = () => (program && program.compiled ? program.compiled.nodes : []);

  // The program

  function start() {
    $("title").textContent = model.title;
    document.title = `${model.title}: gradtape inspector`;
    const select = $("program");
    select.replaceChildren(...model.programs.map((one, number) => {
      const owner = model.functions[one.function];
      const several = owner.programs.length > 1 ? ` ${owner.programs.indexOf(number) + 1} of ${owner.programs.length}` : "";
      const use = one.for_python ? ", numbers that Python asked for" : "";
      return element("option", { value: number }, `${owner.name}${several}${use} · ${duration(one.seconds * one.runs)}`);
    }));
    select.disabled = model.programs.length < 2;
    showProblems();
    showEvents();
    show(0);
    if (!model.programs.length) $("facts").textContent = "No compiled function was called, and no tape was asked for numbers.";
  }

  function show(number) {
    program = model.programs[number] ?? null;
    $("program").value = number;
    chosen = new Set(); chosenLines = new Set(); chosenTraced = new Set();
    opened = new Set(); scope = []; shownNest = -1;
    const stage = $("stage");
    stage.querySelector("[value=compiled]").disabled = !program?.compiled;
    stage.value = program?.compiled ? "compiled" : "traced";
    showFacts();
    showSource();
    showNests();
    showGuards();
    layOut();
    fit();
    update();
  }

  function showFacts() {
    const facts = $("facts");
    facts.replaceChildren();
    if (!program) return;
    const owner = model.functions[program.function];
    const add = (name, value) => facts.append(element("span", {}, `${name} `, element("b", {}, value)));
    add("takes and returns", program.signature);
    add("one run", duration(program.seconds));
    const way = [0, 0, 0];
    for (const line of program.lines) way[line.way] += line.share;
    if (way[1]) add("backward", percent(way[1]));
    add("runs", String(program.runs));
    if (program.misses) add("guards that did not hold", String(program.misses));
    add("machine code", { compiled: `compiled in ${duration(program.compiling)}`, disk: `from the disk cache in ${duration(program.compiling)}`,
      interpreter: `none: ${program.reason || "NumPy's interpreter runs it"}` }[program.origin]);
    add("arrays", `${bytes(program.input)} in, ${bytes(program.output)} out, ${bytes(program.workspace)} between`);
    if (owner.left) add("not shown", plural(owner.left, "smaller program"));
    if (model.failure) facts.append(element("span", {}, "the script ended with ", element("b", {}, model.failure)));
  }

  function showProblems() {
    const list = $("problems");
    list.hidden = !model.problems.length;
    list.replaceChildren(...model.problems.map((problem) => {
      const item = element("li", { tabindex: 0, role: "button" },
        element("b", {}, problem.what), problem.call ? ` in call ${problem.call}` : "",
        problem.line ? ` at ${placeName(problem.file, problem.line)}` : "",
        problem.why ? element("span", {}, problem.why) : null,
        problem.remedy ? element("span", {}, `What to do: ${problem.remedy}`) : null);
      press(item, () => goToProblem(problem));
      return item;
    }));
  }

  function goToProblem(problem) {
    const mark = problem.nodes.find(([number, stage]) => stage === "compiled" || !model.programs[number].compiled) ?? problem.nodes[0];
    if (mark && model.programs[mark[0]] !== program) show(mark[0]);
    if (problem.line) chooseLine(problem.file, problem.line, true);
    const nodes = problem.nodes.filter(([number, stage]) => model.programs[number] === program && stage === "compiled").map(([, , node]) => node);
    if (nodes.length) choose(nodes, { reveal: true });
  }

  function press(item, action) {
    item.addEventListener("click", action);
    item.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); action(); }
    });
  }

  // The source

  function showSource() {
    const body = $("lines");
    body.replaceChildren();
    lineRows = new Map();
    const measure = $("measure").value;
    const costs = new Map();
    for (const line of program?.lines ?? []) {
      const key = keyOf(line);
      if (!costs.has(key)) costs.set(key, []);
      costs.get(key).push(line);
    }
    const made = new Set();
    for (const stage of ["compiled", "traced"]) for (const node of program?.[stage]?.nodes ?? []) if (node.line) made.add(keyOf(node));
    const bad = new Set(model.problems.filter((problem) => problem.line).map(keyOf));
    const total = (program?.lines ?? []).reduce((sum, line) => sum + line[measure], 0) || 1;
    const owner = program ? model.functions[program.function] : null;
    const used = model.files.map((_, file) => file).filter((file) => [...made, ...bad].some((key) => key.startsWith(`${file}:`)) || owner?.file === file);
    let first = true;
    for (const file of used) {
      const { lines, first: start, path } = model.files[file];
      if (used.length > 1) body.append(element("tr", { class: "file" }, element("th", { colspan: 5, scope: "colgroup" }, path)));
      lines.forEach((text, offset) => {
        const number = start + offset;
        const key = `${file}:${number}`;
        const own = costs.get(key) ?? [];
        const ways = WAYS.map((_, way) => own.filter((line) => line.way === way).reduce((sum, line) => sum + line[measure], 0));
        const is = made.has(key) || bad.has(key);
        const figures = [0, 1].map((way) => (ways[way] || (way === 0 && ways[2]) ? MEASURES[measure](ways[way] + (way === 0 ? ways[2] : 0)) : ""));
        const share = ways.reduce((a, b) => a + b, 0) / total;
        const said = !is ? null : `line ${number}: ${text.trim()}; forward ${figures[0] || "nothing"}, backward ${figures[1] || "nothing"}, share ${percent(share)}`;
        const bar = own.length ? element("div", { class: "stack", title: percent(share) }) : null;
        WAYS.forEach((way, k) => { if (ways[k] && bar) { const part = element("i", { class: way }); part.style.width = `${100 * ways[k] / total}%`; bar.append(part); } });
        const row = element("tr", { class: `${is ? "made" : "idle"}${bad.has(key) ? " bad" : ""}`, "data-key": key, role: "row",
          "aria-label": said, "aria-selected": is ? "false" : null, tabindex: is ? (first ? 0 : -1) : null },
          element("td", { class: "number", role: "rowheader" }, bad.has(key) ? `⚠ ${number}` : String(number)), element("td", { class: "code", role: "gridcell" }, ...coloured(text)),
          element("td", { class: "figure", role: "gridcell" }, figures[0]), element("td", { class: "figure", role: "gridcell" }, figures[1]),
          element("td", { class: "share", role: "gridcell" }, bar ?? ""));
        if (is) first = false;
        lineRows.set(key, row);
        body.append(row);
      });
    }
    const hottest = [...(program?.lines ?? [])].sort((a, b) => b.share - a.share)[0];
    const row = hottest && lineRows.get(keyOf(hottest));
    const begin = owner && lineRows.get(`${owner.file}:${owner.line}`);
    reveal((begin ?? row), $("source").querySelector(".scroll"), "start");
    if (row) within(row, $("source").querySelector(".scroll"));
  }

  function reveal(item, scroller, block = "nearest") {
    if (!item) return;
    const outer = scroller.getBoundingClientRect(), inner = item.getBoundingClientRect();
    if (block === "start") scroller.scrollTop += inner.top - outer.top - 40;
    else within(item, scroller);
  }
  function within(item, scroller) {
    const outer = scroller.getBoundingClientRect(), inner = item.getBoundingClientRect();
    if (inner.top < outer.top + 30) scroller.scrollTop += inner.top - outer.top - 60;
    else if (inner.bottom > outer.bottom) scroller.scrollTop += inner.bottom - outer.bottom + 40;
  }

  // Choosing

  function choose(nodes, { line = null, traced = [], reveal: reveals = false } = {}) {
    chosen = new Set(nodes);
    chosenTraced = new Set(traced);
    chosenLines = new Set(line ? [line] : []);
    for (const node of chosen) { const row = compiledNodes()[node]; if (row?.line) chosenLines.add(keyOf(row)); }
    for (const node of chosenTraced) { const row = program.traced.nodes[node]; if (row?.line) chosenLines.add(keyOf(row)); }
    if (!chosenTraced.size && program) {
      const kinds = new Set([...chosen].map((node) => `${keyOf(compiledNodes()[node])}:${compiledNodes()[node].way}`));
      program.traced.nodes.forEach((row, node) => {
        if (row.line && (kinds.has(`${keyOf(row)}:${row.way}`) || (line === keyOf(row)))) chosenTraced.add(node);
      });
    }
    const nests = nestsOf(chosen);
    if (nests.length && !nests.includes(shownNest)) showNest(nests[0]);
    update();
    if (reveals) {
      for (const key of chosenLines) { reveal(lineRows.get(key), $("source").querySelector(".scroll")); break; }
      showChosenBoxes();
    }
  }

  function nodesAt(key, stage) {
    const found = [];
    (program?.[stage]?.nodes ?? []).forEach((row, node) => { if (row.line && keyOf(row) === key) found.push(node); });
    return found;
  }

  function chooseLine(file, line, reveals = false) {
    const key = `${file}:${line}`;
    choose(nodesAt(key, "compiled"), { line: key, traced: nodesAt(key, "traced"), reveal: reveals });
    if (!reveals) showChosenBoxes();
  }

  // The nests that compute some nodes, those that do most for them first.
  function nestsOf(nodes) {
    const found = [];
    (program?.nests ?? []).forEach((nest, number) => {
      const cost = nest.nodes.reduce((sum, [node, share]) => sum + (nodes.has(node) ? share * (nest.seconds ?? 1) + 1e-15 : 0), 0);
      if (cost) found.push([cost, number]);
    });
    return found.sort((a, b) => b[0] - a[0]).map(([, number]) => number);
  }

  function clear() {
    choose([]);
  }

  function update() {
    for (const [key, row] of lineRows) {
      const is = chosenLines.has(key);
      row.classList.toggle("chosen", is);
      if (row.hasAttribute("aria-selected")) row.setAttribute("aria-selected", is);
    }
    const nests = new Set(nestsOf(chosen));
    for (const item of $("nests").querySelectorAll(".nest")) {
      const number = Number(item.dataset.nest);
      item.classList.toggle("chosen", nests.has(number));
      item.setAttribute("aria-selected", nests.has(number) || number === shownNest);
    }
    for (const name of ["loop", "llvm", "assembly"]) {
      let first = null;
      for (const item of $(name).children) {
        const is = chosen.has(Number(item.dataset.node ?? -1));
        item.classList.toggle("chosen", is);
        if (item.hasAttribute("aria-selected")) item.setAttribute("aria-selected", is);
        if (is) first ??= item;
      }
      if (first && !$(name).contains(document.activeElement) && document.activeElement !== $(name)) within(first, $(name));
    }
    showDetails();
    draw();
  }

  function showDetails() {
    const pane = $("details");
    pane.replaceChildren();
    if (!chosen.size && !chosenTraced.size && !chosenLines.size) {
      pane.append(element("span", { class: "quiet" }, "Choose a line, a box, a nest or an instruction to see what belongs to it."));
      return;
    }
    if (!chosen.size && !chosenTraced.size) {
      const here = model.problems.filter((problem) => chosenLines.has(keyOf(problem)));
      for (const problem of here) {
        pane.append(element("div", {}, element("b", { class: "flag" }, `⚠ ${problem.what}. `), problem.why));
        if (problem.remedy) pane.append(element("div", {}, `What to do: ${problem.remedy}`));
      }
      pane.append(element("div", { class: "quiet" }, "No operation of this program is at this line."));
      return;
    }
    const stage = chosen.size ? "compiled" : "traced";
    const nodes = stage === "compiled" ? chosen : chosenTraced;
    const rows = [...nodes].map((node) => program[stage].nodes[node]);
    for (const problem of model.problems) {
      if (problem.nodes.some(([number, where, node]) => model.programs[number] === program && where === stage && nodes.has(node))) {
        pane.append(element("div", {}, element("b", { class: "flag" }, `⚠ ${problem.what}. `), problem.why));
      }
    }
    if (rows.length === 1) {
      const row = rows[0];
      pane.append(element("div", {}, element("code", {}, `${row.name ? `${row.name} = ` : ""}${row.op}${row.numbers ? ` ${row.numbers}` : ""}${row.params ? ` (${row.params})` : ""} → ${row.type}`),
        element("span", { class: "quiet" }, ` ${WAYS[row.way]}${row.of ? `, the derivative of ${row.of}` : ""}${row.line ? `, ${placeName(row.file, row.line)}` : ""}`)));
    } else {
      const ops = new Map();
      for (const row of rows) if (row.kind === 0) ops.set(row.op, (ops.get(row.op) ?? 0) + 1);
      const names = [...ops].slice(0, 24).map(([op, n]) => (n > 1 ? `${op} ×${n}` : op)).join(", ");
      const lines = [...chosenLines].slice(0, 4).map((key) => placeName(...key.split(":").map(Number))).join(", ");
      pane.append(element("div", {}, element("span", { class: "quiet" }, `${lines}${chosenLines.size > 4 ? "…" : ""} · ${plural(rows.length, "node")} `), element("code", {}, names)));
    }
    const costs = (program.lines ?? []).filter((line) => chosenLines.has(keyOf(line))).sort((a, b) => a.way - b.way);
    if (costs.length && chosenLines.size === 1) {
      const table = element("table", {}, element("thead", {}, element("tr", {}, ...["", "time", "share", "operations", "bytes moved"].map((name) => element("th", {}, name)))));
      const body = element("tbody", {});
      for (const line of costs) body.append(element("tr", {}, ...[WAYS[line.way], duration(line.seconds), percent(line.share), count(line.operations), bytes(line.moved)].map((text) => element("td", {}, text))));
      table.append(body);
      pane.append(table);
    }
    if (rows.length === 1) for (const note of notesOf(chosen)) pane.append(element("div", { class: "quiet" }, note));
  }

  const notesOf = (nodes) => (program?.notes ?? []).filter(([, node]) => nodes.has(node)).map(([note]) => note);

  // Nests

  function extents(nest) {
    const chains = nest.extents.slice(0, 3).map((chain) => chain.map((trips) => trips || "?").join(" × "));
    return chains.join(" + ") + (nest.extents.length > 3 ? ` + ${nest.extents.length - 3} more` : "");
  }
  function nestTitle(nest) {
    if (nest.kind === "between") return "outside of loops";
    const what = extents(nest);
    if (nest.kind.startsWith("procedure")) {
      const row = nest.nodes.map(([node]) => compiledNodes()[node]).find((one) => one.op === nest.kind);
      return `${row?.name ?? nest.kind}: loops from code${nest.kind === "procedure" ? "" : ", and their derivative"}`;
    }
    if (nest.kind !== "loop") return what ? `${nest.kind} for each of ${what}` : nest.kind;
    return `loop ${what}${nest.blocks ? `, in ${nest.blocks} blocks` : ""}`;
  }

  function showNests() {
    const list = $("nests");
    list.replaceChildren();
    const nests = program?.nests ?? [];
    if (!nests.length) {
      list.append(element("p", { class: "empty" }, program ? `There is no machine code: ${program.reason || "NumPy runs it, op by op"}.` : ""));
      for (const name of ["loop", "llvm", "assembly"]) $(name).replaceChildren();
      return;
    }
    nests.forEach((nest, number) => {
      if (nest.kind === "between" && !nest.nodes.length) return;
      const bar = element("div", { class: "stack" });
      const ways = [0, 0, 0];
      const ops = new Map();
      for (const [node, share] of nest.nodes) { const row = compiledNodes()[node]; ways[row.way] += share; ops.set(row.op, true); }
      WAYS.forEach((way, k) => { if (ways[k]) { const part = element("i", { class: way }); part.style.width = `${100 * nest.share * ways[k]}%`; bar.append(part); } });
      const rates = nest.seconds ? `${count(nest.operations)} operations, ${bytes(nest.moved)} moved, ${bytes(nest.footprint)} touched; ${count(nest.operations / nest.seconds)} ops/s` : `${count(nest.operations)} operations, ${bytes(nest.moved)} moved`;
      const item = element("div", { class: "nest", role: "option", id: `nest-${number}`, "data-nest": number, "aria-selected": "false" },
        element("div", { class: "head" }, element("b", {}, nestTitle(nest)), element("span", {}, `${duration(nest.seconds)} · ${percent(nest.share)}`)),
        bar, element("div", { class: "ops" }, [...ops.keys()].join(" ")), element("div", { class: "rates" }, rates), element("div", { class: "why" }));
      item.addEventListener("click", () => { showNest(number); choose(nest.nodes.map(([node]) => node)); showChosenBoxes(); });
      list.append(item);
    });
    const rest = program.notes.filter(([, node]) => node < 0).map(([note]) => note);
    if (rest.length) list.append(element("div", { class: "rest" }, element("h4", {}, "Other decisions"), element("ul", {}, ...rest.slice(0, 40).map((note) => element("li", {}, note)))));
    const hottest = nests.map((nest, number) => [nest.seconds ?? 0, number]).sort((a, b) => b[0] - a[0])[0];
    showNest(hottest[1]);
  }

  function showNest(number) {
    shownNest = number;
    const nest = program.nests[number];
    for (const item of $("nests").querySelectorAll(".nest")) {
      const is = Number(item.dataset.nest) === number;
      item.classList.toggle("shown", is);
      const why = item.querySelector(".why");
      why.replaceChildren();
      if (!is) continue;
      $("nests").setAttribute("aria-activedescendant", item.id);
      const notes = notesOf(new Set(nest.nodes.map(([node]) => node)));
      const groups = [["Fused because they share a loop", (note) => note.includes(" shares loop ")],
        ["Why not further", (note) => note.includes(" does not share ")],
        ["Memory", (note) => !note.includes(" shares loop ") && !note.includes(" does not share ")]];
      for (const [title, test] of groups) {
        const own = notes.filter(test);
        if (own.length) why.append(element("h4", {}, title), element("ul", {}, ...own.slice(0, 20).map((note) => element("li", {}, note)),
          own.length > 20 ? element("li", {}, `and ${own.length - 20} more`) : null));
      }
      const list = $("nests"), outer = list.getBoundingClientRect(), inner = item.getBoundingClientRect();
      if (inner.top < outer.top || inner.bottom > outer.bottom) list.scrollTop += inner.top - outer.top - 6;
    }
    listing("loop", program.loops.filter(([, , own]) => own === number).map(([line, node]) => [line, node]), coloured);
    for (const name of ["llvm", "assembly"]) {
      const lines = nest.functions.flatMap((one) => program.listings[name]?.[one] ?? []);
      listing(name, lines, (line) => [line], nest.kind !== "loop" && nest.kind !== "between" ? `It is a call of ${nest.kind}, in the function kernel.` : program.listings.left ?? "");
    }
  }

  function listing(name, lines, paint, otherwise = "") {
    const pane = $(name);
    pane.scrollTop = 0;
    const made = document.createDocumentFragment();
    lines.forEach(([line, node], number) => {
      const row = compiledNodes()[node];
      const item = element("div", { class: row ? `of ${WAYS[row.way]}-line` : "none", id: `${name}-${number}` }, ...paint(line || " "));
      if (row) {
        item.dataset.node = node;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", "false");
        item.title = `${row.op} ${row.type}${row.line ? `\n${placeName(row.file, row.line)}  ${lineText(row.file, row.line).trim()}` : ""}`;
      }
      made.append(item);
    });
    pane.replaceChildren(made);
    if (!lines.length) pane.append(element("p", { class: "empty" }, otherwise || "Nothing."));
  }

  for (const name of ["loop", "llvm", "assembly"]) {
    const pane = $(name);
    const go = (item) => {
      pane.querySelector(".current")?.classList.remove("current");
      item.classList.add("current");
      pane.setAttribute("aria-activedescendant", item.id);
      choose([Number(item.dataset.node)]);
      within(item, pane);
      reveal([...chosenLines].map((key) => lineRows.get(key))[0], $("source").querySelector(".scroll"));
      showChosenBoxes();
    };
    pane.addEventListener("click", (event) => { const item = event.target.closest("[data-node]"); if (item) go(item); });
    pane.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      const items = [...pane.querySelectorAll("[data-node]")];
      const at = items.indexOf(pane.querySelector(".current"));
      const next = items[at < 0 ? 0 : Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), items.length - 1)];
      if (next) go(next);
    });
  }

  $("nests").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const items = [...$("nests").querySelectorAll(".nest")];
    const at = items.findIndex((item) => Number(item.dataset.nest) === shownNest);
    items[Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), items.length - 1)]?.click();
  });

  $("lines").addEventListener("click", (event) => {
    const row = event.target.closest("tr.made");
    if (row) goToRow(row);
  });
  $("lines").addEventListener("keydown", (event) => {
    const rows = [...$("lines").querySelectorAll("tr.made")];
    const at = rows.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); if (at >= 0) goToRow(rows[at]); }
    if (to === undefined || !rows[to]) return;
    event.preventDefault();
    goToRow(rows[to]);
    within(rows[to], $("source").querySelector(".scroll"));
  });
  function goToRow(row) {
    for (const other of $("lines").querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    row.tabIndex = 0;
    row.focus({ preventScroll: true });
    chooseLine(...row.dataset.key.split(":").map(Number));
  }

  // The graph: groups of nodes, in layers. Forward runs down on the left, backward up on the right.

  const stageNodes = () => program?.[$("stage").value]?.nodes ?? [];
  const chosenInStage = () => ($("stage").value === "compiled" ? chosen : chosenTraced);

  function groupOf(row, node, grouping) {
    if (row.kind !== 0 || grouping === "node" || !row.line) return `n${node}`;
    const key = grouping === "line" ? `${row.way}:${keyOf(row)}` : `${row.way}:${row.file}:${row.call}`;
    return opened.has(key) ? `n${node}` : key;
  }

  function layOut() {
    const rows = stageNodes(), edges = program?.[$("stage").value]?.edges ?? [];
    const grouping = $("grouping").value;
    const inside = scope.length ? scope[scope.length - 1] : -1;
    const boxes = [], boxOf = new Map(), byKey = new Map();
    rows.forEach((row, node) => {
      if (row.parent !== inside) return;
      const key = groupOf(row, node, grouping);
      if (!byKey.has(key)) { byKey.set(key, boxes.length); boxes.push({ key, nodes: [], way: row.way, kind: row.kind, number: boxes.length }); }
      const box = boxes[byKey.get(key)];
      box.nodes.push(node);
      boxOf.set(node, box.number);
    });
    // What is inside of a loop belongs to the loop's box.
    rows.forEach((row, node) => {
      let up = row.parent;
      while (up >= 0 && !boxOf.has(up)) up = rows[up].parent;
      if (up >= 0 && row.parent !== inside) { boxOf.set(node, boxOf.get(up)); boxes[boxOf.get(up)].inner = true; }
    });
    const links = new Map();
    for (const [from, to, type] of edges) {
      const a = boxOf.get(from), b = boxOf.get(to);
      if (a === undefined || b === undefined || a === b || rows[from].parent !== rows[to].parent) continue;
      const key = a * boxes.length + b;
      const link = links.get(key);
      if (link) { link.count += 1; if (link.type !== type) link.type = null; } else links.set(key, { from: a, to: b, count: 1, type });
    }
    for (const box of boxes) {
      const row = rows[box.nodes[0]];
      if (box.nodes.length > 1 || box.key[0] !== "n") {
        const code = lineText(row.file, row.line).trim();
        box.title = grouping === "call" ? `${row.call}()` : `${box.way === 1 ? "∂ " : ""}${row.line}: ${code}`;
        box.sub = box.nodes.length === 1 ? `${row.op} · ${row.type}` : `${plural(box.nodes.length, "op")} · ${[...new Set(box.nodes.slice(0, 40).map((node) => rows[node].op))].slice(0, 4).join(", ")}`;
        box.group = true;
      } else {
        box.title = `${row.name ? `${row.name} = ` : ""}${row.op}${row.numbers ? ` ${row.numbers}` : ""}`;
        box.sub = `${row.part && row.kind === 0 && row.part !== "body" ? `${row.part} · ` : ""}${row.type}${row.result !== undefined ? ` · result ${row.result}` : ""}`;
      }
      if (box.inner) box.sub = `${box.sub}${box.sub ? " · " : ""}${INSIDE[rows[box.nodes[0]].op] ?? "loop"} ▸`;
      if (box.title.length > 36) box.title = `${box.title.slice(0, 35)}…`;
      if (box.sub.length > 44) box.sub = `${box.sub.slice(0, 43)}…`;
      box.w = Math.max(box.title.length * 7.3, box.sub.length * 6.1, 40) + 20;
    }
    const bad = new Set();
    for (const problem of model.problems) for (const [number, stage, node] of problem.nodes) if (model.programs[number] === program && stage === $("stage").value) bad.add(node);
    for (const box of boxes) box.bad = box.nodes.some((node) => bad.has(node));
    graph = { boxes, links: [...links.values()], boxOf };
    for (const link of graph.links) { (boxes[link.from].out ??= []).push(link); (boxes[link.to].in ??= []).push(link); }
    place();
    current = -1;
    showWay();
  }

  // Layers by longest path in the order of the program, positions near those of the neighbours: linear in boxes and links, but for sorting.
  function place() {
    const { boxes } = graph;
    const halves = [boxes.filter((box) => box.way !== 1), boxes.filter((box) => box.way === 1)];
    const rowsOf = [0, 0];
    halves.forEach((half, side) => {
      const own = new Set(half.map((box) => box.number));
      for (const box of half) {
        box.layer = 0;
        for (const link of box.in ?? []) {
          const before = boxes[link.from];
          if (own.has(before.number) && before.number < box.number) box.layer = Math.max(box.layer, before.layer + 1);
        }
      }
      for (const box of [...half].reverse()) { // inputs and constants come just before what reads them
        if (box.kind === 0 && box.in) continue;
        const readers = (box.out ?? []).map((link) => boxes[link.to]).filter((other) => own.has(other.number) && other.number > box.number);
        if (readers.length) box.layer = Math.max(Math.min(...readers.map((other) => other.layer)) - 1, 0);
      }
      const layers = [];
      for (const box of half) (layers[box.layer] ??= []).push(box);
      const lines = [];
      for (let k = 0; k < layers.length; k += 1) {
        const layer = layers[k] ?? [];
        for (let at = 0; at < Math.max(layer.length, 1); at += PER_ROW) lines.push(layer.slice(at, at + PER_ROW));
      }
      for (const line of lines) spread(line, line.map(() => 0));
      for (let sweep = 0; sweep < 4; sweep += 1) {
        const down = sweep % 2 === 0;
        for (const line of down ? lines : [...lines].reverse()) {
          const wish = new Map(line.map((box) => {
            const near = (down ? box.in ?? [] : box.out ?? []).map((link) => boxes[down ? link.from : link.to]).filter((other) => own.has(other.number) && other.x !== undefined);
            return [box, near.length ? near.reduce((sum, other) => sum + other.x, 0) / near.length : box.x];
          }));
          line.sort((a, b) => wish.get(a) - wish.get(b) || a.number - b.number);
          spread(line, line.map((box) => wish.get(box)));
        }
      }
      rowsOf[side] = fold(lines);
    });
    const height = Math.max(...rowsOf.map((rows) => Math.max((rows - 1) * STEP + BOX, BOX)));
    let left = 0;
    graph.titles = [];
    halves.forEach((half, side) => {
      if (!half.length) return;
      const low = Math.min(...half.map((box) => box.x - box.w / 2)), high = Math.max(...half.map((box) => box.x + box.w / 2));
      for (const box of half) {
        box.x += left - low;
        box.y = side === 0 ? box.row * STEP + BOX / 2 : height - box.row * STEP - BOX / 2;
      }
      graph.titles.push([left + (high - low) / 2, side === 0 ? "forward ↓" : "backward ↑"]);
      left += high - low + COLUMN_GAP;
    });
    graph.width = Math.max(left - COLUMN_GAP, 1);
    graph.height = height;
  }

  // Number the rows of boxes; many rows become several columns beside each other, as lines of text do. Returns how many rows there are.
  function fold(lines) {
    const extent = (some) => [Math.min(...some.flat().map((box) => box.x - box.w / 2)), Math.max(...some.flat().map((box) => box.x + box.w / 2))];
    const filled = lines.filter((line) => line.length);
    if (filled.length <= MOST_ROWS) {
      lines.forEach((line, k) => { for (const box of line) box.row = k; });
      return lines.length;
    }
    const widths = filled.map((line) => { const [low, high] = extent([line]); return high - low + COLUMN_GAP; });
    const mean = widths.reduce((sum, width) => sum + width, 0) / widths.length;
    const rows = Math.max(MOST_ROWS, Math.ceil(Math.sqrt((filled.length * mean) / STEP)));
    let left = 0;
    for (let at = 0; at < filled.length; at += rows) {
      const column = filled.slice(at, at + rows);
      const [low, high] = extent(column);
      column.forEach((line, k) => { for (const box of line) { box.row = k; box.x += left - low; } });
      left += high - low + COLUMN_GAP;
    }
    return rows;
  }

  // Place boxes in their order as near to wishes as their widths allow: pool adjacent violators.
  function spread(line, wishes) {
    const offsets = [0];
    for (let k = 1; k < line.length; k += 1) offsets.push(offsets[k - 1] + (line[k - 1].w + line[k].w) / 2 + GAP);
    const blocks = [];
    line.forEach((_, k) => {
      let block = [wishes[k] - offsets[k], 1];
      while (blocks.length && blocks[blocks.length - 1][0] / blocks[blocks.length - 1][1] > block[0] / block[1]) {
        const before = blocks.pop();
        block = [block[0] + before[0], block[1] + before[1]];
      }
      blocks.push(block);
    });
    let k = 0;
    for (const [total, size] of blocks) for (let n = 0; n < size; n += 1, k += 1) line[k].x = total / size + offsets[k];
  }

  function showWay() {
    const way = $("way");
    way.replaceChildren();
    if (!scope.length) return;
    const rows = stageNodes();
    const step = (text, depth) => { const button = element("button", { type: "button" }, text); button.addEventListener("click", () => enter(scope.slice(0, depth))); return button; };
    way.append(step("program", 0));
    scope.forEach((node, k) => way.append(" ▸ ", step(`${rows[node].op}${rows[node].line ? ` ${rows[node].line}` : ""}`, k + 1)));
  }

  function enter(path) {
    scope = path;
    layOut();
    fit();
    draw();
  }

  // Show the whole graph; at first only as much as can be read.
  function fit(always = false) {
    const { clientWidth: width, clientHeight: height } = $("canvas");
    isMoved = false;
    if (!graph || !width) return;
    const whole = Math.min((width - 24) / graph.width, (height - 48) / graph.height, 1.25);
    const scale = Math.max(whole, always ? 0.002 : 0.6);
    camera = { scale, x: (width - graph.width * scale) / 2, y: Math.max((height + 16 - graph.height * scale) / 2, 30) };
    if (graph.width * scale > width && graph.titles.length) { // the end of the forward half, where the result is
      const last = graph.boxes.reduce((a, b) => (b.way !== 1 && b.y >= a.y ? b : a));
      camera.x = width / 2 - last.x * scale;
      if (graph.height * scale > height) camera.y = height - 30 - (last.y + BOX) * scale;
    }
  }

  function zoom(factor, x = $("canvas").clientWidth / 2, y = $("canvas").clientHeight / 2) {
    const scale = Math.min(Math.max(camera.scale * factor, 0.002), 4);
    camera.x = x - (x - camera.x) * (scale / camera.scale);
    camera.y = y - (y - camera.y) * (scale / camera.scale);
    camera.scale = scale;
    isMoved = true;
    draw();
  }

  function showChosenBoxes() {
    const own = chosenInStage();
    const numbers = new Set([...own].map((node) => graph.boxOf.get(node)));
    const boxes = graph.boxes.filter((box) => numbers.has(box.number));
    if (!boxes.length) return;
    const { clientWidth: width, clientHeight: height } = $("canvas");
    const seen = (box) => { const x = box.x * camera.scale + camera.x, y = box.y * camera.scale + camera.y; return x > 20 && x < width - 20 && y > 20 && y < height - 20; };
    if (boxes.some(seen)) return;
    camera.x = width / 2 - boxes[0].x * camera.scale;
    camera.y = height / 2 - boxes[0].y * camera.scale;
    draw();
  }

  let drawing = false;
  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; paint(); });
  }

  function curve(link) {
    const a = graph.boxes[link.from], b = graph.boxes[link.to];
    if ((a.way === 1) !== (b.way === 1)) {
      const sign = a.x < b.x ? 1 : -1;
      const x = a.x + sign * a.w / 2, u = b.x - sign * b.w / 2, bend = sign * Math.max(40, Math.abs(u - x) / 2);
      return `M${x.toFixed(1)},${a.y.toFixed(1)} C${(x + bend).toFixed(1)},${a.y.toFixed(1)} ${(u - bend).toFixed(1)},${b.y.toFixed(1)} ${u.toFixed(1)},${b.y.toFixed(1)}`;
    }
    const sign = a.y <= b.y ? 1 : -1;
    const y = a.y + sign * BOX / 2, v = b.y - sign * BOX / 2, middle = (y + v) / 2;
    return `M${a.x.toFixed(1)},${y.toFixed(1)} C${a.x.toFixed(1)},${middle.toFixed(1)} ${b.x.toFixed(1)},${middle.toFixed(1)} ${b.x.toFixed(1)},${v.toFixed(1)}`;
  }
  const linkClass = (link) => { const a = graph.boxes[link.from].way, b = graph.boxes[link.to].way; return (a === 1) !== (b === 1) ? "across" : WAYS[b]; };
  const boxClass = (box) => (box.kind === 1 ? "input" : box.kind === 2 ? "constant" : WAYS[box.way]);

  function paint() {
    const view = $("view");
    view.replaceChildren();
    if (!graph) return;
    const { clientWidth: width, clientHeight: height } = $("canvas");
    view.setAttribute("transform", `translate(${camera.x.toFixed(2)},${camera.y.toFixed(2)}) scale(${camera.scale.toFixed(5)})`);
    const left = -camera.x / camera.scale, top = -camera.y / camera.scale;
    const right = left + width / camera.scale, bottom = top + height / camera.scale;
    const seen = (box) => box.x + box.w / 2 > left && box.x - box.w / 2 < right && box.y + BOX > top && box.y - BOX < bottom;
    const visible = graph.boxes.filter(seen);
    const own = chosenInStage();
    const marked = new Set([...own].map((node) => graph.boxOf.get(node)));
    const chosenBoxes = new Set(visible.filter((box) => marked.has(box.number)));
    for (const [x, text] of graph.titles ?? []) view.append(svg("text", { class: "title", x: x.toFixed(1), y: -12, "font-size": 12 }, text));
    if (visible.length > MOST_DRAWN) {
      const shapes = new Map(), curves = new Map();
      const add = (map, key, text) => { if (!map.has(key)) map.set(key, []); map.get(key).push(text); };
      for (const link of graph.links) if (seen(graph.boxes[link.from]) || seen(graph.boxes[link.to])) add(curves, linkClass(link), curve(link));
      for (const box of visible) add(shapes, boxClass(box), `M${(box.x - box.w / 2).toFixed(0)} ${(box.y - BOX / 2).toFixed(0)}h${box.w.toFixed(0)}v${BOX}h${-box.w.toFixed(0)}z`);
      for (const [name, parts] of curves) view.append(svg("path", { class: `edge ${name}`, d: parts.join("") }));
      for (const [name, parts] of shapes) view.append(svg("path", { class: `${name}-box`, d: parts.join("") }));
      for (const box of [...chosenBoxes].slice(0, MOST_DRAWN)) view.append(drawn(box, true, false));
      for (const box of visible.filter((one) => one.bad)) view.append(drawn(box, false, false));
      return;
    }
    const shown = new Set(visible);
    const links = graph.links.filter((link) => shown.has(graph.boxes[link.from]) || shown.has(graph.boxes[link.to])).slice(0, 4 * MOST_DRAWN);
    const labels = [];
    for (const link of links) {
      const marked = chosenBoxes.has(graph.boxes[link.from]) || chosenBoxes.has(graph.boxes[link.to]);
      const name = linkClass(link);
      view.append(svg("path", { class: `edge ${name}${marked ? " chosen-edge" : ""}`, d: curve(link) }));
      const named = camera.scale >= 0.55 && (marked || (name !== "across" && links.length < 120));
      if (named) {
        const a = graph.boxes[link.from], b = graph.boxes[link.to];
        labels.push(svg("text", { class: "label", x: ((a.x + b.x) / 2).toFixed(1), y: ((a.y + b.y) / 2 + 3).toFixed(1) }, link.type ?? plural(link.count, "value")));
      }
    }
    view.append(...labels);
    for (const box of visible) view.append(drawn(box, chosenBoxes.has(box), camera.scale > 0.3));
  }

  function drawn(box, marked, words) {
    const group = svg("g", { class: `box${marked ? " chosen-box" : ""}${box.bad ? " bad-box" : ""}${box.number === current ? " current" : ""}`, "data-box": box.number });
    group.append(svg("rect", { class: `${boxClass(box)}-box`, x: (box.x - box.w / 2).toFixed(1), y: (box.y - BOX / 2).toFixed(1), width: box.w.toFixed(1), height: BOX }));
    if (words) {
      group.append(svg("text", { x: box.x.toFixed(1), y: (box.y - 2).toFixed(1) }, box.title), svg("text", { class: "sub", x: box.x.toFixed(1), y: (box.y + 12).toFixed(1) }, box.sub));
      if (box.bad) group.append(svg("text", { class: "flag", x: (box.x + box.w / 2 - 8).toFixed(1), y: (box.y - BOX / 2 - 3).toFixed(1) }, "⚠"));
    }
    const row = stageNodes()[box.nodes[0]];
    group.append(svg("title", {}, `${box.title}\n${box.sub}${row.line ? `\n${placeName(row.file, row.line)}` : ""}`));
    return group;
  }

  function chooseBox(box) {
    current = box.number;
    const rows = stageNodes();
    const inner = (node) => [node, ...(box.inner ? rows.flatMap((row, other) => (row.parent === node ? inner(other) : [])) : [])];
    const nodes = box.nodes.flatMap(inner);
    if ($("stage").value === "compiled") choose(nodes);
    else {
      const keys = new Set(nodes.map((node) => `${keyOf(rows[node])}:${rows[node].way}`));
      const compiled = compiledNodes().flatMap((row, node) => (row.line && keys.has(`${keyOf(row)}:${row.way}`) ? [node] : []));
      choose(compiled, { traced: nodes });
    }
    reveal([...chosenLines].map((key) => lineRows.get(key)).find(Boolean), $("source").querySelector(".scroll"));
  }

  function open(box) {
    const rows = stageNodes();
    const loop = box.nodes.find((node) => rows.some((row) => row.parent === node));
    if (loop !== undefined && box.nodes.length === 1) return enter([...scope, loop]);
    const key = box.group ? box.key : closing(box);
    if (!key) return undefined;
    if (opened.has(key)) opened.delete(key); else opened.add(key);
    const anchor = { x: box.x * camera.scale + camera.x, y: box.y * camera.scale + camera.y, node: box.nodes[0] };
    layOut();
    const opener = graph.boxes[graph.boxOf.get(anchor.node)];
    if (isMoved) {
      camera.x = anchor.x - opener.x * camera.scale;
      camera.y = anchor.y - opener.y * camera.scale;
    } else fit();
    current = opener.number;
    showChosenBoxes();
    return draw();
  }

  // The group from which a node's box was opened.
  function closing(box) {
    const row = stageNodes()[box.nodes[0]];
    if (row.kind !== 0 || $("grouping").value === "node" || !row.line) return null;
    return $("grouping").value === "line" ? `${row.way}:${keyOf(row)}` : `${row.way}:${row.file}:${row.call}`;
  }

  const canvas = $("canvas");
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => { grip = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const dx = event.clientX - grip.x, dy = event.clientY - grip.y;
    if (!grip.moved && Math.hypot(dx, dy) < 4) return;
    canvas.classList.add("moving");
    camera.x += dx; camera.y += dy;
    isMoved = true;
    grip = { x: event.clientX, y: event.clientY, moved: true };
    draw();
  });
  let dragged = false;
  canvas.addEventListener("pointerup", () => {
    dragged = Boolean(grip?.moved);
    grip = null;
    canvas.classList.remove("moving");
  });
  // What the first click shows may resize the graph: the second one of a double click means the same box, wherever that is by then.
  let clicked = null;
  canvas.addEventListener("click", (event) => {
    if (dragged || event.detail > 1) return;
    clicked = boxAt(event);
    if (clicked) chooseBox(clicked); else clear();
  });
  canvas.addEventListener("pointercancel", () => { grip = null; canvas.classList.remove("moving"); });
  canvas.addEventListener("dblclick", () => { if (clicked) open(clicked); });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { left, top } = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - left, event.clientY - top);
  }, { passive: false });

  function boxAt(event) {
    if (!graph) return null;
    const { left, top } = canvas.getBoundingClientRect();
    const x = (event.clientX - left - camera.x) / camera.scale, y = (event.clientY - top - camera.y) / camera.scale;
    return graph.boxes.find((box) => Math.abs(x - box.x) <= box.w / 2 && Math.abs(y - box.y) <= BOX / 2) ?? null;
  }

  // The nearest box in the direction of an arrow key; what lies off to the side counts three times.
  function beside(box, key) {
    const [dx, dy] = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[key];
    let best = null, least = Infinity;
    for (const other of graph.boxes) {
      const along = dx * (other.x - box.x) + dy * (other.y - box.y);
      if (other === box || along < 1) continue;
      const aside = Math.abs(dx ? other.y - box.y : other.x - box.x);
      const distance = along + 3 * aside;
      if (distance < least) { least = distance; best = other; }
    }
    return best;
  }

  canvas.addEventListener("keydown", (event) => {
    if (!graph?.boxes.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = graph.boxes[current];
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const next = at ? beside(at, event.key) : graph.boxes.find((box) => box.kind === 0) ?? graph.boxes[0];
      if (!next) return;
      chooseBox(next);
      const x = next.x * camera.scale + camera.x, y = next.y * camera.scale + camera.y;
      if (x < 60 || x > canvas.clientWidth - 60 || y < 40 || y > canvas.clientHeight - 40) {
        camera.x += canvas.clientWidth / 2 - x;
        camera.y += canvas.clientHeight / 2 - y;
      }
      draw();
    } else if (event.key === "Enter" && at) { event.preventDefault(); open(at); }
    else if (event.key === "Backspace" && scope.length) { event.preventDefault(); enter(scope.slice(0, -1)); }
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") { fit(true); draw(); }
  });
  $("closer").addEventListener("click", () => zoom(1.4));
  $("farther").addEventListener("click", () => zoom(1 / 1.4));
  $("whole").addEventListener("click", () => { fit(true); draw(); });
  for (const name of ["stage", "grouping"]) $(name).addEventListener("change", () => { opened = new Set(); scope = []; layOut(); fit(); draw(); });
  $("measure").addEventListener("change", () => { showSource(); update(); });
  $("program").addEventListener("change", (event) => show(Number(event.target.value)));
  new ResizeObserver(() => { if (!isMoved) fit(); draw(); }).observe(canvas);

  // The timeline

  const KINDS = { signature: "new types", guard: "guard missed", capture: "changed outside", trace: "traced", translation: "translated", kernel: "machine code", prologue: "kept data", interpreter: "interpreter", limit: "limit" };
  function showEvents() {
    const body = $("events");
    body.replaceChildren();
    const last = Math.max(...model.events.map((event) => event.at), 1e-9);
    for (const event of model.events) {
      const bar = element("i", {});
      bar.style.left = `${100 * Math.max(event.at - event.seconds, 0) / last}%`;
      bar.style.width = `${100 * event.seconds / last}%`;
      const row = element("tr", { tabindex: 0 }, element("td", { class: "figure" }, duration(event.at)), element("td", { class: `kind ${event.kind}` }, KINDS[event.kind]),
        element("td", {}, model.functions[event.function].name), element("td", {}, event.text), element("td", {}, placeName(event.file, event.line)),
        element("td", { class: "figure" }, event.seconds ? duration(event.seconds) : "", element("span", { class: "track" }, bar)));
      press(row, () => {
        const [own] = model.functions[event.function].programs;
        if (own !== undefined && program?.function !== event.function) show(own);
        if (event.line) chooseLine(event.file, event.line, true);
      });
      body.append(row);
    }
    if (!model.events.length) body.append(element("tr", {}, element("td", { colspan: 6, class: "empty" }, "Nothing was traced or compiled.")));
  }

  function showGuards() {
    const pane = $("guards");
    pane.replaceChildren();
    if (!program?.guards.length) return;
    pane.append("This trace holds while ");
    program.guards.slice(0, 40).forEach((guard, k) => {
      const button = element("button", { type: "button" }, `the value at ${placeName(guard.file, guard.line)} is ${guard.expected}`);
      button.addEventListener("click", () => chooseLine(guard.file, guard.line, true));
      pane.append(k ? ", " : "", button);
    });
    if (program.guards.length > 40) pane.append(` and ${program.guards.length - 40} more guards hold`);
    pane.append(program.misses ? `; ${plural(program.misses, "run")} found another value.` : ".");
  }

  const tabs = [$("tab-nests"), $("tab-events")];
  function showTab(tab) {
    for (const other of tabs) {
      const is = other === tab;
      other.setAttribute("aria-selected", is);
      other.tabIndex = is ? 0 : -1;
      $(other.getAttribute("aria-controls")).hidden = !is;
    }
  }
  for (const tab of tabs) {
    tab.addEventListener("click", () => showTab(tab));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = tabs[1 - tabs.indexOf(tab)];
      showTab(other);
      other.focus();
    });
  }

  // Search

  let results = [];
  function search(text) {
    const wanted = text.trim().toLowerCase();
    results = [];
    if (wanted && program) {
      const nodes = new Map();
      for (const stage of [$("stage").value]) program[stage].nodes.forEach((row, node) => {
        const name = row.name ?? row.op;
        if (!`${row.op} ${row.name ?? ""} ${row.type}`.toLowerCase().includes(wanted)) return;
        if (!nodes.has(name)) nodes.set(name, []);
        nodes.get(name).push(node);
      });
      const rank = (name) => (name === wanted ? 0 : name.startsWith(wanted) ? 1 : 2);
      for (const [name, found] of [...nodes].sort((a, b) => rank(a[0].toLowerCase()) - rank(b[0].toLowerCase()))) results.push([name, plural(found.length, "node"), () => {
        if ($("stage").value === "compiled") choose(found, { reveal: true });
        else { choose([], { traced: found }); showChosenBoxes(); }
      }]);
      for (const [key, row] of lineRows) {
        if (results.length >= MOST_FOUND) break;
        const [file, line] = key.split(":").map(Number);
        const code = lineText(file, line).trim();
        if (row.classList.contains("made") && (code.toLowerCase().includes(wanted) || String(line) === wanted)) results.push([code, placeName(file, line), () => { chooseLine(file, line, true); }]);
      }
      program.nests.forEach((nest, number) => {
        if (nestTitle(nest).toLowerCase().includes(wanted)) results.push([nestTitle(nest), "nest", () => $(`nest-${number}`)?.click()]);
      });
      model.programs.forEach((one, number) => {
        const name = model.functions[one.function].name;
        if (one !== program && name.toLowerCase().includes(wanted)) results.push([name, "program", () => show(number)]);
      });
      results.length = Math.min(results.length, MOST_FOUND);
    }
    const list = $("found");
    list.replaceChildren(...results.map(([what, kind, go], k) => {
      const item = element("li", { role: "option", id: `found-${k}`, "aria-selected": k === 0 }, element("b", {}, what), element("span", {}, kind));
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); go(); list.hidden = true; });
      return item;
    }));
    if (wanted && !results.length) list.append(element("li", {}, `nothing has “${text}”`));
    list.hidden = !wanted;
    $("search").setAttribute("aria-expanded", !list.hidden);
    $("search").setAttribute("aria-activedescendant", results.length ? "found-0" : "");
  }
  $("search").addEventListener("input", (event) => search(event.target.value));
  $("search").addEventListener("blur", () => { $("found").hidden = true; });
  $("search").addEventListener("keydown", (event) => {
    const items = [...$("found").querySelectorAll("[role=option]")];
    const at = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && items.length) {
      event.preventDefault();
      const next = (at + (event.key === "ArrowDown" ? 1 : items.length - 1)) % items.length;
      items.forEach((item, k) => item.setAttribute("aria-selected", k === next));
      items[next].scrollIntoView({ block: "nearest" });
      $("search").setAttribute("aria-activedescendant", items[next].id);
    } else if (event.key === "Enter" && at >= 0) {
      results[at][2]();
      $("found").hidden = true;
      $("search").blur();
    }
  });

  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); $("search").focus(); $("search").select(); }
    if (event.key === "Escape") {
      if (!$("found").hidden || document.activeElement === $("search")) { $("search").value = ""; search(""); $("search").blur(); } else clear();
    }
  });

  $("help").addEventListener("click", () => { const keys = $("keys"); keys.hidden = !keys.hidden; $("help").setAttribute("aria-expanded", !keys.hidden); });
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // Live: a server says when the function or the script has run again.

  async function live({ token, version, again }) {
    $("live").hidden = false;
    $("again").hidden = !again;
    const ask = (path, options) => fetch(`${path}?token=${encodeURIComponent(token)}&seen=${version}`, options);
    $("again").addEventListener("click", async () => { $("state").textContent = "running"; await ask("run", { method: "POST" }); });
    $("state").textContent = "live";
    for (;;) {
      try {
        const answer = await ask("model");
        if (answer.status === 200) {
          const { version: now, model: fresh, state } = await answer.json();
          $("state").textContent = state;
          if (fresh && now !== version) {
            version = now;
            const kept = { line: [...chosenLines][0], program: Number($("program").value) };
            model = fresh;
            start();
            if (kept.program && model.programs[kept.program]) show(kept.program);
            if (kept.line && lineRows.has(kept.line)) chooseLine(...kept.line.split(":").map(Number));
          }
        } else if (answer.status !== 204) throw new Error(answer.statusText);
      } catch {
        $("state").textContent = "the server has ended";
        return;
      }
    }
  }

  start();
  if (model.live) live(model.live);
})();
