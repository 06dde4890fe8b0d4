/** Notices when the files of a store are moved or removed under it: writes would go where nobody will find them. */

import { statSync } from "node:fs";
import { StoreOpenError } from "../../domain/errors.ts";

/** Throws where the files that were there when this was made are no longer in their places. */
export type RequireInPlace = () => void;

export function watchPlaces(files: readonly string[]): RequireInPlace {
  const places = files.map((file) => ({ file, identity: identify(file) }));
  return () => {
    for (const { file, identity } of places)
      if (identify(file) !== identity)
        throw new StoreOpenError(
          `${file} was moved or removed while it was in use. Put it back, or restart on what is there now.`,
        );
  };
}

function identify(file: string): string | undefined {
  const stats = statSync(file, { throwIfNoEntry: false });
  return stats === undefined ? undefined : `${stats.dev}:${stats.ino}`;
}
