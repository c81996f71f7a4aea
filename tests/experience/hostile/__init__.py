"""Files made to take memory or time, to lead to other files, or to break their readers; and what reads them."""
