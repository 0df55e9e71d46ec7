"""The paper, again: each module regenerates one of its examples or experiments and sets its numbers beside ours."""
