//! Stories, all small worlds, and long random ones; and proof that each would catch a mistake.
