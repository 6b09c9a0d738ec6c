"""TensorBoards as the API shows them."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from nni_manager.api.schemas.daemon import Sent, Wire
from nni_manager.scheduler.tensorboard.board import BoardStatus


class NewTensorBoard(Sent):
    """A request for a TensorBoard."""

    model_config = ConfigDict(extra="forbid")

    trials: list[str] = Field(description="Ids of the trials that it shows, 200 at most.", min_length=1, max_length=200)
    port: int | None = Field(
        default=None, ge=1024, le=65535, description="Its port; not given: the first free one from 6006 on."
    )


class TensorBoard(Wire):
    """A process of the program `tensorboard` on the manager's machine."""

    id: str = Field(description="Its id.", examples=["3fa01c"])
    status: BoardStatus = Field(description="RUNNING; DOWNLOADING_DATA: being started; STOPPED; ERROR.")
    trials: list[str] = Field(description="Ids of the trials that it shows: those whose files are on that machine.")
    folders: list[str] = Field(description="What it reads of each: $NNI_OUTPUT_DIR/tensorboard.")
    port: int = Field(description="Its port on 127.0.0.1.")
    url: str = Field(description="Its address, on the manager's machine alone.")
    pid: int | None = Field(description="Its process; null: none yet.")


class TensorBoardList(Wire):
    tensorboards: list[TensorBoard] = Field(description="Those of the experiment, oldest first.")
