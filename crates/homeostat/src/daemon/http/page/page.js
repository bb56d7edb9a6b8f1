// Keeps the page up to date while it is looked at: heals are put on top of their table, the headline changes when the
// daemon's does, the countdown of a trial runs. Lists are not made again: a link says that there is something new.
"use strict";

const MOST = 200;
const byId = (id) => document.getElementById(id);
const body = document.body;
const rows = byId("drift-rows");
const headline = byId("headline");
let newest = Number(body.dataset.newest);
let events = null;
let ends = null;
let words = "";

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function clock(millis) {
  const seconds = Math.max(0, Math.ceil(millis / 1000));
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  return hours > 0
    ? `${hours}:${two(minutes % 60)}:${two(seconds % 60)}`
    : `${minutes}:${two(seconds % 60)}`;
}

// The sentence with the time that is left in it.
function tick() {
  const text = ends === null ? words : words.replace(/[\d:]+ left/, `${clock(ends - performance.now())} left`);
  setText(byId("text"), text);
  const title = `${body.dataset.host}: ${text}`;
  if (document.title !== title) document.title = title;
}

function count(left) {
  ends = left === null || left === undefined ? null : performance.now() + Number(left);
  tick();
}

// The countdown is not read out each second.
setInterval(() => {
  if (ends !== null && !document.hidden) tick();
}, 500);

function showHeadline(now) {
  const isNew = now.text.replace(/[\d:]+ left/, "") !== words.replace(/[\d:]+ left/, "");
  words = now.text;
  headline.className = `headline ${now.class}`;
  setText(byId("sign"), now.sign);
  setText(byId("detail"), now.detail);
  const command = byId("command");
  command.hidden = now.command === null;
  setText(command.querySelector("code"), now.command ?? "");
  count(now.left_ms);
  if (!isNew) return;
  setText(byId("said"), now.text);
  setText(byId("again"), "Something changed: read again");
}

function showHeal(heal) {
  if (heal.id <= newest) return;
  newest = heal.id;
  const former = rows.querySelector(`[data-row="${heal.row}"]`);
  if (former) former.remove();
  const row = byId("drift-row").content.firstElementChild.cloneNode(true);
  row.dataset.row = heal.row;
  row.className = "new";
  const set = (field, text) => setText(row.querySelector(`[data-field="${field}"]`), text);
  const time = document.createElement("time");
  time.dateTime = heal.time;
  time.title = heal.time;
  time.textContent = heal.clock;
  row.querySelector('[data-field="clock"]').append(time);
  set("key", heal.key);
  row.querySelector('[data-field="key"]').title = `${heal.source} in ${heal.scope}`;
  set("what", heal.what);
  set("by", heal.by ?? "unknown");
  set("took", heal.took ?? "found by a full look");
  set("times", heal.times > 1 ? `\u00d7 ${heal.times.toLocaleString("en")}` : "");
  rows.prepend(row);
  byId("no-drift").hidden = true;
  byId("drift-table").hidden = false;
  while (rows.children.length > MOST) rows.lastElementChild.remove();
}

function setLive(isOn, text) {
  const live = byId("live");
  live.className = isOn ? "" : "off";
  setText(live, text);
}

function open() {
  if (events !== null || document.hidden) return;
  events = new EventSource(`/live?after=${newest}`);
  events.onopen = () => setLive(true, "\u25cf live");
  events.onerror = () => {
    setLive(false, "\u25cb not live: read again");
    // It tries again by itself, unless it was refused.
    if (events !== null && events.readyState === EventSource.CLOSED) close();
  };
  events.addEventListener("headline", (event) => showHeadline(JSON.parse(event.data)));
  events.addEventListener("missed", () => setText(byId("again"), "Some heals are not shown: read again"));
  if (rows.hasAttribute("data-live")) {
    events.addEventListener("drift", (event) => showHeal(JSON.parse(event.data)));
  }
}

function close() {
  if (events !== null) events.close();
  events = null;
}

function addCopyButtons() {
  for (const code of document.querySelectorAll(".command code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the command");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
    code.after(button);
  }
}

words = byId("text").textContent;
byId("again").href = location.search || "/";
if (headline.dataset.left !== undefined) count(headline.dataset.left);
addCopyButtons();
// A page that nobody looks at holds no connection.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);
open();
