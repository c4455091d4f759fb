"""What larger counts of ranks will cost and reach, predicted from measured smaller ones."""
