//! How many items go into one message.

/// Takes in as many items as have a number of bytes together, or a single one that has more. So a
/// message is never larger than both, though an item may be as large as a message can be.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    left: usize,
    is_empty: bool,
}

impl Page {
    /// An empty one, for items of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Page {
            left: bytes,
            is_empty: true,
        }
    }

    /// Takes in an item of this many bytes, if there is room for it.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let takes = self.is_empty || bytes <= self.left;
        if takes {
            (self.left, self.is_empty) = (self.left.saturating_sub(bytes), false);
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_one_large_item_alone_or_small_ones_up_to_its_size() {
        let taken = |items: [usize; 3]| {
            let mut page = Page::new(10);
            items.map(|bytes| page.takes(bytes))
        };
        assert_eq!(taken([6, 4, 1]), [true, true, false]);
        assert_eq!(taken([6, 50, 4]), [true, false, true]);
        assert_eq!(taken([50, 1, 0]), [true, false, true]);
    }
}
