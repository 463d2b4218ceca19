/* A trace as a picture: a storyboard as SVG or PNG, and an animation as GIF. All are drawn from one list of boxes. */
const PICTURE = { font: "16px system-ui, 'Noto Sans', 'Noto Sans CJK JP', sans-serif", height: 30, space: 7, padding: 16, row: 44, label: 58 };
const INK = "#1c1c22", QUIET = "#5f5f6b", PAPER = "#ffffff";

/* The colours of `--along`, without the browser's colour space: GIF and SVG readers know sRGB only. */
function stepColour(step, count) {
  const along = count > 1 ? (step - 1) / (count - 1) : 0;
  const stops = [[190, 187, 247], [157, 219, 205], [246, 216, 150]];
  const [low, high] = along < 0.5 ? [stops[0], stops[1]] : [stops[1], stops[2]];
  const share = along < 0.5 ? 2 * along : 2 * along - 1;
  return `#${low.map((value, channel) => Math.round(value + (high[channel] - value) * share).toString(16).padStart(2, "0")).join("")}`;
}

const measuring = document.createElement("canvas").getContext("2d");
function textWidth(text) { measuring.font = PICTURE.font; return Math.ceil(measuring.measureText(text).width); }

/* The boxes of one step, beginning at x. */
function boxesOf(player, step, y) {
  const rightToLeft = player.canvas.dir === "rtl";
  const shown = player.trace.words.map((word, index) => ({ word, at: player.trace.writtenAt[index] })).filter(({ at }) => at <= step);
  if (rightToLeft) shown.reverse();
  let x = PICTURE.padding + PICTURE.label;
  return shown.map(({ word, at }) => {
    const width = textWidth(word) + 22;
    const box = { x, y, width, word, fill: stepColour(at, player.count), isNewest: at === step };
    x += width + PICTURE.space;
    return box;
  });
}

function storyboard(player) {
  const rows = Array.from({ length: player.count }, (_, number) => ({ label: `step ${number + 1}`, boxes: boxesOf(player, number + 1, PICTURE.padding + number * PICTURE.row) }));
  const last = rows.at(-1)?.boxes.at(-1);
  return { rows, width: (last ? last.x + last.width : 200) + PICTURE.padding, height: player.count * PICTURE.row + 2 * PICTURE.padding };
}

function asSvg(player) {
  const { rows, width, height } = storyboard(player);
  const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const parts = rows.flatMap(({ label, boxes }, number) => [
    `<text x="${PICTURE.padding}" y="${PICTURE.padding + number * PICTURE.row + 20}" fill="${QUIET}" font-size="13">${label}</text>`,
    ...boxes.map((box) => `<rect x="${box.x}" y="${box.y}" width="${box.width}" height="${PICTURE.height}" rx="9" fill="${box.fill}"${box.isNewest ? ` stroke="${INK}" stroke-width="2"` : ""}/>`
      + `<text x="${box.x + box.width / 2}" y="${box.y + 21}" text-anchor="middle" fill="${INK}">${escape(box.word)}</text>`),
  ]);
  return `<svg xmlns="${svgSpace}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="16"><title>${escape(player.trace.text ?? "")}: written by insertion</title><rect width="100%" height="100%" fill="${PAPER}"/>${parts.join("")}</svg>`;
}

function paint(context, boxes, label, labelY) {
  context.font = "13px system-ui, sans-serif";
  context.textAlign = "left";
  context.fillStyle = QUIET;
  context.fillText(label, PICTURE.padding, labelY + 20);
  context.font = PICTURE.font;
  context.textAlign = "center";
  for (const box of boxes) {
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, PICTURE.height, 9);
    context.fillStyle = box.fill;
    context.fill();
    if (box.isNewest) { context.strokeStyle = INK; context.lineWidth = 2; context.stroke(); }
    context.fillStyle = INK;
    context.fillText(box.word, box.x + box.width / 2, box.y + 21);
  }
}

function surface(width, height, scale = 1) {
  const canvas = element("canvas", { width: width * scale, height: height * scale });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.scale(scale, scale);
  context.fillStyle = PAPER;
  context.fillRect(0, 0, width, height);
  return { canvas, context };
}

function asPng(player) {
  const { rows, width, height } = storyboard(player);
  const { canvas, context } = surface(width, height, 2);
  rows.forEach(({ label, boxes }, number) => paint(context, boxes, label, PICTURE.padding + number * PICTURE.row));
  return new Promise((made) => canvas.toBlob(made, "image/png"));
}

function asGif(player) {
  const { width } = storyboard(player);
  const height = PICTURE.row + PICTURE.padding;
  const frames = [];
  for (let step = 1; step <= player.count; step += 1) {
    const { context } = surface(width, height);
    paint(context, boxesOf(player, step, PICTURE.padding), `step ${step}`, PICTURE.padding);
    frames.push({ pixels: context.getImageData(0, 0, width, height).data, hundredths: step === player.count ? 250 : 80 });
  }
  return new Blob([gifOf(frames, width, height)], { type: "image/gif" });
}

/* An animated GIF that repeats. Its 216 colours are the corners of a cube with six levels a channel, and 40 greys. */
function gifOf(frames, width, height) {
  const bytes = [];
  const short = (value) => bytes.push(value & 255, value >> 8);
  bytes.push(...[..."GIF89a"].map((letter) => letter.charCodeAt(0)));
  short(width); short(height);
  bytes.push(0xf7, 0, 0);
  for (let index = 0; index < 216; index += 1) bytes.push(51 * Math.floor(index / 36), 51 * (Math.floor(index / 6) % 6), 51 * (index % 6));
  for (let index = 0; index < 40; index += 1) bytes.push(...new Array(3).fill(Math.round(255 * index / 39)));
  bytes.push(0x21, 0xff, 11, ...[..."NETSCAPE2.0"].map((letter) => letter.charCodeAt(0)), 3, 1, 0, 0, 0);
  for (const { pixels, hundredths } of frames) {
    bytes.push(0x21, 0xf9, 4, 4); short(hundredths); bytes.push(0, 0);
    bytes.push(0x2c); short(0); short(0); short(width); short(height); bytes.push(0);
    bytes.push(8);
    const packed = compressed(indexed(pixels), 8);
    for (let start = 0; start < packed.length; start += 255) {
      const part = packed.slice(start, start + 255);
      bytes.push(part.length, ...part);
    }
    bytes.push(0);
  }
  bytes.push(0x3b);
  return new Uint8Array(bytes);
}

function indexed(pixels) {
  const indices = new Uint8Array(pixels.length / 4);
  for (let number = 0; number < indices.length; number += 1) {
    const [red, green, blue] = [pixels[4 * number], pixels[4 * number + 1], pixels[4 * number + 2]];
    const isGrey = Math.max(red, green, blue) - Math.min(red, green, blue) < 12;
    indices[number] = isGrey ? 216 + Math.round((red + green + blue) / 3 * 39 / 255) : 36 * Math.round(red / 51) + 6 * Math.round(green / 51) + Math.round(blue / 51);
  }
  return indices;
}

/* LZW as in GIF: codes grow from bits + 1 to 12 bits, then the table begins anew. */
function compressed(indices, bits) {
  const clear = 1 << bits, end = clear + 1, out = [];
  let size = bits + 1, next = end + 1, table = new Map(), held = 0, heldBits = 0;
  const write = (code) => {
    held |= code << heldBits;
    heldBits += size;
    while (heldBits >= 8) { out.push(held & 255); held >>>= 8; heldBits -= 8; }
  };
  write(clear);
  let prefix = indices[0];
  for (let number = 1; number < indices.length; number += 1) {
    const key = prefix * 256 + indices[number];
    const known = table.get(key);
    if (known !== undefined) { prefix = known; continue; }
    write(prefix);
    if (next < 4096) {
      if (next === 1 << size && size < 12) size += 1;
      table.set(key, next);
      next += 1;
    } else {
      write(clear);
      table = new Map();
      next = end + 1;
      size = bits + 1;
    }
    prefix = indices[number];
  }
  write(prefix);
  if (next === 1 << size && size < 12) size += 1;
  write(end);
  if (heldBits) out.push(held & 255);
  return out;
}

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
