"""Pure helpers with no opinion about the API: quantities, selectors, patches, clocks."""
