/** Something that has to be read. */

import type { ComponentChildren, JSX } from "preact";
import { Icon } from "./icons.tsx";

interface NoticeProps {
  readonly kind: "fault" | "warning" | "good";
  readonly title: string;
  readonly children?: ComponentChildren;
}

export function Notice({ kind, title, children }: NoticeProps): JSX.Element {
  return (
    <div class={`notice notice-${kind}`} role={kind === "good" ? "status" : "alert"}>
      <Icon name={kind === "good" ? "check" : "warning"} />
      <div>
        <p class="notice-title">{title}</p>
        {children}
      </div>
    </div>
  );
}
