/** What is sent for a form or a dialog. At most one submission is in flight. */

import { signal } from "@preact/signals";

export class Submission {
  readonly isBusy = signal(false);
  /** The error of the last attempt. */
  readonly trouble = signal<unknown>(undefined);

  readonly run = async (action: () => Promise<void>): Promise<void> => {
    if (this.isBusy.value) return;
    this.isBusy.value = true;
    this.trouble.value = undefined;
    try {
      await action();
    } catch (error) {
      this.trouble.value = error;
    } finally {
      this.isBusy.value = false;
    }
  };
}
