/** A value that several parts of the page show, and that changes for all of them at once. */

export interface SharedValue {
  readonly get: () => string;
  readonly set: (value: string) => void;
  readonly subscribe: (onChange: () => void) => () => void;
}

export function shareValue(value: string): SharedValue {
  const listeners = new Set<() => void>();
  let current = value;
  return {
    get: () => current,
    set: (next) => {
      current = next;
      for (const listener of listeners) listener();
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
