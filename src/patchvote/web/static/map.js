/**
 * Evidence maps: a photo in colour where it supports a class, grey and dim elsewhere.
 *
 * The picture is that of `patchvote explain`: its brightness is `sqrt(clip(contrast / max(contrast), 0, 1))`, where contrast
 * is the votes for a class minus the strongest for another. The map is neither smoothed nor enhanced; only its enlargement
 * to the size of the photo interpolates.
 */

const LONGEST = 64; // cells of a map on the longer side of the photo
const ENLARGED = 11; // pixels per cell; odd, so that one pixel shows the very middle of each cell
const TINT = "rgb(255 120 0 / 30%)"; // shows evidence on grey photos, too

/** Return the width and height of a map for a photo, in cells. */
export function gridOf({ width, height }) {
  const scale = LONGEST / Math.max(width, height);
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
}

/** Return the brightness of every cell, 0 to 1, row by row. */
function brightness(contrast) {
  const values = contrast.flat();
  const strongest = Math.max(values.reduce((a, b) => Math.max(a, b), -Infinity), 1e-12);
  return values.map((value) => Math.sqrt(Math.min(Math.max(value / strongest, 0), 1)));
}

/** Draw the lit parts of a photo on a canvas that lies over the dim photo: each pixel is as opaque as its cell is bright. */
export function drawLit(canvas, image, contrast) {
  const cells = cellsOf(contrast);
  canvas.width = cells.width * ENLARGED;
  canvas.height = cells.height * ENLARGED;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = true;
  pen.drawImage(cells, 0, 0, canvas.width, canvas.height);
  pen.globalCompositeOperation = "source-in";
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.globalCompositeOperation = "source-atop";
  pen.fillStyle = TINT;
  pen.fillRect(0, 0, canvas.width, canvas.height);
}

/** Return a canvas with one pixel per cell, as opaque as the cell is bright. */
function cellsOf(contrast) {
  const cells = document.createElement("canvas");
  cells.width = contrast[0].length;
  cells.height = contrast.length;
  const pen = cells.getContext("2d");
  const data = pen.createImageData(cells.width, cells.height);
  brightness(contrast).forEach((value, index) => data.data.set([255, 255, 255, Math.round(255 * value)], 4 * index));
  pen.putImageData(data, 0, 0);
  return cells;
}

/** Draw the square around a part of a photo, as far as it is within the photo. */
export function drawPart(canvas, image, box, side = 192) {
  const [left, top, right, bottom] = box.map((edge, index) => edge * (index % 2 ? image.naturalHeight : image.naturalWidth));
  const half = Math.max(right - left, bottom - top) / 2;
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  const [x0, y0] = [Math.max(0, x - half), Math.max(0, y - half)];
  const [x1, y1] = [Math.min(image.naturalWidth, x + half), Math.min(image.naturalHeight, y + half)];
  canvas.width = side;
  canvas.height = side;
  canvas.getContext("2d").drawImage(image, x0, y0, x1 - x0, y1 - y0, 0, 0, side, side);
}
