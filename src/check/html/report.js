// Copies commands, opens all evidence at once, and opens everything for printing. The page works without it.
"use strict";

const live = document.getElementById("live");

async function copy(button) {
  const command = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(command.textContent);
    live.textContent = "Command copied.";
    button.firstChild.textContent = "Copied";
    setTimeout(() => { button.firstChild.textContent = "Copy"; }, 2000);
  } catch {
    getSelection().selectAllChildren(command);
    live.textContent = "The clipboard is closed to this page; the command is selected.";
  }
}

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}

const openAll = document.getElementById("open-all");
if (openAll) {
  const evidence = [...document.querySelectorAll("details.evidence")];
  const label = () => {
    openAll.textContent = evidence.every((entry) => entry.open) ? "Close all evidence" : "Open all evidence";
  };
  openAll.hidden = evidence.length === 0;
  openAll.addEventListener("click", () => {
    const open = !evidence.every((entry) => entry.open);
    for (const entry of evidence) entry.open = open;
    label();
  });
  for (const entry of evidence) entry.addEventListener("toggle", label);
}

let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const entry of closed) entry.open = true;
});
addEventListener("afterprint", () => {
  for (const entry of closed) entry.open = false;
});
