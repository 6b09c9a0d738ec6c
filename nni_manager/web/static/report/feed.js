// Replaces the page's feed: the report's data answer each question, once and after each choice of the reader. A chart is
// drawn shortly before it comes into view, and before printing.

import { answerTo } from "./answers.js";

export class Feed {
  #address;
  #handlers;
  #shown = null;

  constructor(element, address, handlers) {
    this.#address = address;
    this.#handlers = handlers;
    const begin = () => {
      observer.disconnect();
      removeEventListener("beforeprint", begin);
      this.refresh();
    };
    const observer = new IntersectionObserver((found) => found.at(-1).isIntersecting && begin(), { rootMargin: "300px" });
    observer.observe(element);
    addEventListener("beforeprint", begin);
  }

  end() {}

  async refresh() {
    const answer = answerTo(this.#address());
    if (answer === this.#shown) return;
    if (answer === undefined) return this.#handlers.fail("the report does not contain these data; open the experiment's page");
    this.#shown = answer;
    try {
      await this.#handlers.answer(answer);
    } catch (error) {
      this.#handlers.fail(error.message);
    }
  }
}
