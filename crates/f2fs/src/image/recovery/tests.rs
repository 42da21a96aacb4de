//! Roll-forward, scenario by scenario.
