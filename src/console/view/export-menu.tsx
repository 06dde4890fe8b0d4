/** Sharing and downloading the view that is shown. */

import type { JSX } from "preact";
import { exporting, exportPlants } from "../state/export.ts";
import { formatBytes } from "../state/numbers.ts";
import { currentFilter, everything, formatRoute } from "../state/route.ts";
import { toast } from "../state/toasts.ts";
import { Icon } from "./icons.tsx";
import { Menu } from "./menu.tsx";

async function copyLink(): Promise<void> {
  const to = formatRoute({ view: "plants", filter: currentFilter(), open: undefined });
  try {
    await navigator.clipboard.writeText(new URL(to, location.href).href);
    toast("The link to this view is copied.");
  } catch {
    toast("The link cannot be copied here; take it from the address bar.");
  }
}

export function ExportMenu(): JSX.Element {
  const running = exporting.value;
  if (running !== undefined)
    return (
      <button type="button" class="button" onClick={running.cancel}>
        <span class="tabular">{formatBytes(running.bytes)}</span> Cancel
      </button>
    );
  const filter = currentFilter();
  const isAll = filter.name === everything.name && filter.tag === everything.tag;
  const what = isAll ? "all plants" : "these plants";
  return (
    <Menu label="Share and export" buttonClass="button button-icon" button={<Icon name="share" />}>
      <button type="button" class="menu-item" onClick={() => void copyLink()}>
        Copy link to this view
      </button>
      <hr />
      <button type="button" class="menu-item" onClick={() => void exportPlants(filter, "csv")}>
        Export {what} as CSV
        <small>for spreadsheets</small>
      </button>
      <button type="button" class="menu-item" onClick={() => void exportPlants(filter, "ndjson")}>
        Export {what} as NDJSON
        <small>for programs</small>
      </button>
    </Menu>
  );
}
