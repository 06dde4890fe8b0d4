/** Labels, camera, scanner, export and the printed list. */
export const tools = {} as const;
