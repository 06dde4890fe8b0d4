/** What a promise rejects with. The runner's own `rejects` is typed as if it needed no awaiting. */

export async function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the promise was expected to reject, and resolved");
}
