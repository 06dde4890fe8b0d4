/** The import of a file, its preview and its undo. */
export const imports = {} as const;
