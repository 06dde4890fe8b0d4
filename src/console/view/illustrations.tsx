/** Small drawings for views that have nothing else to show. */

import type { ComponentChildren, JSX } from "preact";

function Drawing({ children }: { readonly children: ComponentChildren }): JSX.Element {
  return (
    <svg class="drawing" viewBox="0 0 160 120" aria-hidden="true">
      {children}
    </svg>
  );
}

const Pot = (): JSX.Element => (
  <>
    <path class="drawing-fill" d="M52 78h56l-6 34H58l-6-34Z" />
    <path class="drawing-fill" d="M48 68h64v10H48z" />
    <path class="drawing-ground" d="M24 112h112" />
  </>
);

/** A pot with a label, and nothing in it yet. */
export const EmptyPot = (): JSX.Element => (
  <Drawing>
    <path class="drawing-label" d="M88 22h16v34l-8 14-8-14z" />
    <path class="drawing-thin" d="M92 30h8M92 36h8M92 42h5" />
    <Pot />
  </Drawing>
);

/** A label whose plant is not there. */
export const NoMatch = (): JSX.Element => (
  <Drawing>
    <path class="drawing-thin" d="M68 68c0-14-8-22-22-24 0 14 8 22 22 24Z" stroke-dasharray="3 4" />
    <path class="drawing-thin" d="M68 68c0-18 8-28 24-32 2 18-8 30-24 32Z" stroke-dasharray="3 4" />
    <Pot />
    <circle class="drawing-lens" cx="104" cy="50" r="19" />
    <path class="drawing-handle" d="m118 64 16 16" />
  </Drawing>
);

/** The stem is cut. */
export const CutStem = (): JSX.Element => (
  <Drawing>
    <path class="drawing-leaf" d="M80 30c0-14-9-21-26-22 0 15 9 22 26 22Z" />
    <path class="drawing-leaf" d="M80 36c0-15 9-23 27-24 1 16-10 24-27 24Z" />
    <path class="drawing-stem" d="M80 30v14" />
    <path class="drawing-stem" d="M80 56v12" />
    <path class="drawing-thin" d="m66 46 8 3M94 46l-8 3M66 56l7-2M94 56l-7-2" />
    <Pot />
  </Drawing>
);

/** A sheet of rows on its way into the pot. */
export const Sheet = (): JSX.Element => (
  <Drawing>
    <path class="drawing-label" d="M56 8h48v50H56z" />
    <path class="drawing-thin" d="M56 20h48M56 32h48M56 44h48M72 8v50" />
    <path class="drawing-stem" d="M80 62v14M74 71l6 6 6-6" />
    <path class="drawing-fill" d="M52 84h56l-5 28H57l-5-28Z" />
    <path class="drawing-ground" d="M24 112h112" />
  </Drawing>
);
