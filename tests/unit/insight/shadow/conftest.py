from unit.engine.scheduler.conftest import kit

__all__ = ["kit"]
