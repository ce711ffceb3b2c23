"""Who may ask our listeners: the names under which they may be reached, and credentials."""
