//! How many bytes may be under way.

/// What counts as small is at most this part of the window.
const SMALL_PART: usize = 64;

/// Counts the bytes under way from one role to the next, small things and large ones apart: a small
/// one waits for no larger one. Of each class there is room for a window, or for one thing alone
/// that is larger.
#[derive(Clone, Debug)]
pub struct ByteWindow {
    limit: usize,
    under_way: [usize; 2],
}

impl ByteWindow {
    /// Nothing is under way yet, and of each class at most `limit` bytes will be.
    pub fn new(limit: usize) -> Self {
        ByteWindow {
            limit,
            under_way: [0; 2],
        }
    }

    /// The class of a part of `bytes` bytes: 0 for small ones, 1 for large ones.
    pub fn class(&self, bytes: usize) -> usize {
        usize::from(bytes > self.limit / SMALL_PART)
    }

    /// Whether a part of `bytes` bytes may be sent.
    pub fn has_room(&self, bytes: usize) -> bool {
        let under_way = self.under_way[self.class(bytes)];
        under_way == 0 || under_way + bytes <= self.limit
    }

    /// It begins its way.
    pub fn add(&mut self, bytes: usize) {
        self.under_way[self.class(bytes)] += bytes;
    }

    /// It has arrived, or is given up.
    pub fn remove(&mut self, bytes: usize) {
        self.under_way[self.class(bytes)] -= bytes;
    }

    /// From now on `limit` holds; things of these sizes are under way. Their classes may be others
    /// than before.
    pub fn resize(&mut self, limit: usize, under_way: impl IntoIterator<Item = usize>) {
        *self = ByteWindow::new(limit);
        under_way.into_iter().for_each(|bytes| self.add(bytes));
    }

    /// Nothing is under way any more.
    pub fn clear(&mut self) {
        self.under_way = [0; 2];
    }

    /// How many bytes are under way.
    pub fn bytes(&self) -> usize {
        self.under_way[0] + self.under_way[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_a_window_and_what_is_larger_goes_alone() {
        let mut window = ByteWindow::new(6400);
        assert_eq!([window.class(100), window.class(101)], [0, 1]);
        window.add(10_000);
        assert!(
            !window.has_room(101) && window.has_room(100),
            "small ones pass a large one"
        );
        window.add(100);
        assert!(window.has_room(100));
        window.remove(10_000);
        assert!(window.has_room(10_000), "and do not hold it up");
        window.add(6000);
        assert!(window.has_room(400) && !window.has_room(401));
        assert_eq!(window.bytes(), 6100);
        window.clear();
        assert_eq!(window.bytes(), 0);
    }
}
