"""Points that come and go as files, and those that come with the package."""
