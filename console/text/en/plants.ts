/** The list of plants, the panel of a plant, the forms, bulk actions. */
export const plants = {
  idTakenBy: "Already belongs to {plant}.",
  notAdded: "{name} isn't added yet.",
} as const;
