"""Where rows of experience are kept: columns, frames kept once, copies on a device."""
