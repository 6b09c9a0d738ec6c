// Requests to the manager. Without an answer, browsers raise errors with different texts, such as "Failed to fetch".

export async function ask(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the manager did not answer");
  }
}
