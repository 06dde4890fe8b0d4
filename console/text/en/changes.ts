/** The journal: changes, history of a plant, overview, pictures. */
export const changes = {} as const;
