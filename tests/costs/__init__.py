"""What every public input costs at its limit: `make costs` grows each alone and in pairs, and measures the longest step."""
