export const plants = {
  idTakenBy: "Appartient déjà à {plant}.",
  notAdded: "{name} n’est pas encore ajoutée.",
};
