// In place of the page's feed: questions are answered from the report itself, once and whenever the reader chooses.

import { answerTo } from "./answers.js";

export class Feed {
  #address;
  #handlers;
  #shown = null;

  constructor(element, address, handlers) {
    this.#address = address;
    this.#handlers = handlers;
    new IntersectionObserver((found, observer) => {
      if (!found.at(-1).isIntersecting) return;
      observer.disconnect();
      this.refresh();
    }, { rootMargin: "300px" }).observe(element);
  }

  async refresh() {
    const answer = answerTo(this.#address());
    if (answer === this.#shown) return;
    if (answer === undefined) return this.#handlers.fail("the report does not have it; the experiment's page does");
    this.#shown = answer;
    try {
      await this.#handlers.answer(answer);
    } catch (error) {
      this.#handlers.fail(error.message);
    }
  }
}
