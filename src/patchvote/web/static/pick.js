/**
 * Files that a user picks: dropped, pasted, chosen, or taken with the camera.
 *
 * A picked file is `{file, path}`; the path has the folders that it was dropped with ("pets/cat/1.jpg").
 */

/** Return the files of a drop, those inside of folders too. Must be called while the event is handled. */
async function filesOf(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const roots = items.map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
  const lists = [];
  for (const root of roots) {
    if (root instanceof File) lists.push([{ file: root, path: root.name }]);
    else if (root) lists.push(await filesBelow(root));
  }
  return visible(lists.flat());
}

async function filesBelow(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => { entry.file(resolve, reject); });
    return [{ file, path: entry.fullPath.replace(/^\//, "") }];
  }
  const found = [];
  const reader = entry.createReader();
  for (;;) { // a reader returns at most a hundred entries at once
    const entries = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!entries.length) return found;
    for (const child of entries) found.push(...(await filesBelow(child)));
  }
}

/** Leave out hidden files, which systems put into folders. The order stays that in which they were picked. */
function visible(picked) {
  return picked.filter(({ path }) => !path.split("/").some((part) => part.startsWith(".")));
}

/** Whether files came inside of folders. */
export function inFolders(picked) {
  return picked.some(({ path }) => path.includes("/"));
}

/** Open the system's dialog for files; `folder` chooses a whole folder, `camera` opens the camera of a phone. */
export function choose({ folder = false, camera = false, accept = "image/*,.heic,.heif,.avif", several = true } = {}) {
  const input = document.createElement("input");
  Object.assign(input, { type: "file", accept: folder ? "" : accept, multiple: several && !camera, webkitdirectory: folder });
  if (camera) input.setAttribute("capture", "environment");
  input.hidden = true;
  document.body.append(input); // some browsers forget inputs that are not in the document
  return new Promise((resolve) => {
    input.addEventListener("change", () => {
      resolve(visible([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }))));
    });
    input.addEventListener("cancel", () => resolve([]));
    input.click();
  }).finally(() => input.remove());
}

/** Make an element a place to drop files on; `onPicked(picked)` gets them. Drops inside of inner places stay there. */
export function acceptDrops(element, onPicked) {
  let depth = 0; // of children that the pointer has entered; each sends its own events
  const mark = (change) => {
    depth = change === 0 ? 0 : Math.max(0, depth + change);
    element.classList.toggle("over", depth > 0);
  };
  element.addEventListener("dragenter", (event) => { if (hasFiles(event)) mark(1); });
  element.addEventListener("dragleave", (event) => { if (hasFiles(event)) mark(-1); });
  element.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  element.addEventListener("drop", async (event) => {
    mark(0);
    if (!hasFiles(event) || event.defaultPrevented) return;
    event.preventDefault();
    const picked = await filesOf(event.dataTransfer);
    if (picked.length) onPicked(picked);
  });
}

/** Call a function with the files of every paste that has files. */
export function acceptPastes(onPicked) {
  document.addEventListener("paste", async (event) => {
    if (!event.clipboardData?.files.length) return;
    event.preventDefault();
    const picked = await filesOf(event.clipboardData);
    if (picked.length) onPicked(picked);
  });
}

function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files") ?? false;
}
