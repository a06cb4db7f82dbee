// Evaluated in a page: returns the visible parts of its current layout as JSON.
(() => {
  const numbers = (color) => {
    const parts = color.match(/[\d.]+/g).map(Number);
    return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [least, most] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (most + 0.05) / (least + 0.05);
  };
  // The background of an element: that of its drawing, or of the nearest ancestor that has one.
  const ground = (element) => {
    const paper = element.ownerSVGElement && element.closest("svg").parentElement
      ?.closest("svg")?.querySelector(".paper");
    if (paper) return numbers(getComputedStyle(paper).fill).rgb;
    for (let at = element; at; at = at.parentElement) {
      const color = numbers(getComputedStyle(at).backgroundColor);
      if (color.alpha === 1) return color.rgb;
    }
    return [255, 255, 255];
  };
  const box = (element) => {
    const { left, right, top, bottom, width, height } = element.getBoundingClientRect();
    return { left, right, top: top + scrollY, bottom: bottom + scrollY, width, height };
  };
  const middle = (element) => {
    const { left, right, top, bottom } = box(element);
    return { x: (left + right) / 2, y: (top + bottom) / 2 };
  };
  // The place of a shape: the mean of its corners.
  const place = (shape) => {
    if (!shape.points) return middle(shape);
    const corners = [...shape.points].map((corner) => corner.matrixTransform(shape.getScreenCTM()));
    const mean = (axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / corners.length;
    return { x: mean("x"), y: mean("y") + scrollY };
  };
  const fill = (element) => getComputedStyle(element).fill;
  const texts = [];
  const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.data.trim();
    if (!text || element.closest("head, title, desc, style")) continue;
    const { width, height } = element.getBoundingClientRect();
    if (width === 0 || height === 0) continue;
    const style = getComputedStyle(element);
    const color = numbers(element.ownerSVGElement ? style.fill : style.color).rgb;
    const scale = element.getScreenCTM ? element.getScreenCTM().a : 1;
    texts.push({ text, contrast: contrast(color, ground(element)), size: parseFloat(style.fontSize) * scale });
  }
  const plot = (svg) => ({
    id: svg.closest("figure")?.id ?? "",
    title: svg.querySelector("title")?.textContent ?? "",
    box: box(svg),
    markers: [...svg.querySelectorAll("circle, polygon")].map((shape) => ({ fill: fill(shape), ...place(shape) })),
    lines: svg.querySelectorAll("polyline").length,
    columns: [...svg.querySelectorAll("rect:not(.paper)")].map((column) => ({ fill: fill(column), ...middle(column), height: box(column).height })),
    labels: [...svg.querySelectorAll("text")].map((text) => ({ text: text.textContent.trim(), box: box(text), ...middle(text) })),
  });
  return JSON.stringify({
    width: document.documentElement.clientWidth,
    widthWanted: document.documentElement.scrollWidth,
    ground: ground(document.body ?? document.documentElement),
    texts,
    plots: [...document.querySelectorAll("figure svg[role=img], :root:is(svg)")].map(plot),
    sections: [...document.querySelectorAll("h2")].map((heading) => heading.textContent),
    brokenLinks: [...document.querySelectorAll("a")].map((link) => link.getAttribute("href"))
      .filter((href) => !href.startsWith("#") || !document.getElementById(href.slice(1))),
    summary: document.querySelector("h1 + p")?.textContent ?? "",
    content: document.querySelector("main") && box(document.querySelector("main section")),
    tables: [...document.querySelectorAll("table")].map((table) => ({
      box: box(table),
      isCut: table.parentElement.scrollWidth > table.parentElement.clientWidth + 1,
      hint: getComputedStyle(table.parentElement, "::before").content,
      caption: table.caption.textContent,
      rows: [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)),
    })),
    resources: performance.getEntriesByType("resource").map((entry) => entry.name),
  });
})()
