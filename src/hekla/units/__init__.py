"""Pure helpers below the API: quantities, selectors, patches, server-side apply, clocks."""
