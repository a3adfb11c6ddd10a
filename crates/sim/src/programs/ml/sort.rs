//! Quicksort with futures over lists: both parts of a list are sorted by tasks of their own, which take turns.

use std::collections::VecDeque;

use super::heap::{Heap, NIL, Root, Value, int, number};
use super::{Mutator, Random};

/// Elements that a task looks at before the next one has its turn. A choice: a thousand are some milliseconds of the machine of 1991.
const TURN: u32 = 1000;

/// What a task is at.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Parts a list: what is left of it, what is below the pivot, and what is not.
    Part {
        pivot: u32,
        below: Root,
        above: Root,
    },
    /// Waits for so many parts.
    Waits { left: u8, pivot: u32 },
    /// Puts the lower part, backwards first, before the upper one.
    Join { back: Root },
}

/// A future: its list, or the sorted one.
#[derive(Clone, Copy, Debug)]
struct Task {
    stage: Stage,
    /// What is left to look at.
    list: Root,
    /// The sorted parts.
    parts: [Root; 2],
    /// Whose part this is, and which.
    parent: Option<(usize, usize)>,
}

/// The program.
pub(super) struct Sort {
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    elements: u32,
    made: u32,
    input: Option<Root>,
    random: Random,
    pub sorted: Option<Root>,
}

impl Sort {
    /// Sorts so many random numbers.
    pub const fn new(elements: u32, random: Random) -> Self {
        Self {
            tasks: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            elements,
            made: 0,
            input: None,
            random,
            sorted: None,
        }
    }

    /// Makes a future of sorting the list in `list`, which it takes; one of a short list is there at once.
    fn future(&mut self, heap: &mut Heap, list: Root, parent: Option<(usize, usize)>) {
        let first = heap.of(list);
        let short = first == NIL || heap.get(first, 1) == NIL;
        if short {
            return self.finished(heap, list, parent);
        }
        let pivot = number(heap.get(first, 0));
        let rest = heap.get(first, 1);
        heap.set(list, rest);
        let stage = Stage::Part {
            pivot,
            below: heap.root(NIL),
            above: heap.root(NIL),
        };
        // Their results come later: cells that are assigned then.
        let parts = [(), ()].map(|()| {
            let cell = heap.alloc([NIL]);
            heap.root(cell)
        });
        let task = Some(Task {
            stage,
            list,
            parts,
            parent,
        });
        let at = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        });
        self.tasks[at] = task;
        self.ready.push_back(at);
    }

    /// A list is sorted: whoever waits for it has it.
    fn finished(&mut self, heap: &mut Heap, sorted: Root, parent: Option<(usize, usize)>) {
        let Some((parent, part)) = parent else {
            self.sorted = Some(sorted);
            return;
        };
        let task = self.tasks[parent].as_mut().expect("it waits");
        let cell = heap.of(task.parts[part]);
        heap.assign(cell, 0, heap.of(sorted));
        heap.drop_root(sorted);
        let Stage::Waits { left, pivot } = &mut task.stage else {
            unreachable!("it parted its list")
        };
        *left -= 1;
        if *left == 0 {
            for part in task.parts {
                let cell = heap.of(part);
                let list = heap.get(cell, 0);
                heap.set(part, list);
            }
            push(heap, task.parts[1], int(*pivot));
            heap.set(task.list, heap.of(task.parts[0]));
            task.stage = Stage::Join {
                back: heap.root(NIL),
            };
            self.ready.push_back(parent);
        }
    }

    /// One element of a task's list. False when the task does not go on.
    fn element(&mut self, heap: &mut Heap, at: usize) -> bool {
        let task = self.tasks[at].expect("it is ready");
        let cell = heap.of(task.list);
        match task.stage {
            Stage::Part {
                pivot,
                below,
                above,
            } if cell != NIL => {
                let (value, rest) = (heap.get(cell, 0), heap.get(cell, 1));
                heap.set(task.list, rest);
                let part = if number(value) < pivot { below } else { above };
                push(heap, part, value);
                true
            }
            Stage::Part {
                pivot,
                below,
                above,
            } => {
                heap.drop_root(task.list);
                let list = heap.root(NIL);
                let waits = Task {
                    stage: Stage::Waits { left: 2, pivot },
                    list,
                    ..task
                };
                self.tasks[at] = Some(waits);
                self.future(heap, below, Some((at, 0)));
                self.future(heap, above, Some((at, 1)));
                false
            }
            Stage::Join { back } if cell != NIL => {
                let (value, rest) = (heap.get(cell, 0), heap.get(cell, 1));
                heap.set(task.list, rest);
                push(heap, back, value);
                true
            }
            Stage::Join { back } => {
                let cell = heap.of(back);
                if cell != NIL {
                    let (value, rest) = (heap.get(cell, 0), heap.get(cell, 1));
                    heap.set(back, rest);
                    push(heap, task.parts[1], value);
                    return true;
                }
                [back, task.list, task.parts[0]]
                    .into_iter()
                    .for_each(|root| heap.drop_root(root));
                self.tasks[at] = None;
                self.free.push(at);
                self.finished(heap, task.parts[1], task.parent);
                false
            }
            Stage::Waits { .. } => unreachable!("it is not ready"),
        }
    }
}

/// Puts a number before a list.
fn push(heap: &mut Heap, list: Root, value: Value) {
    let cell = heap.alloc([value, heap.of(list)]);
    heap.set(list, cell);
}

impl Mutator for Sort {
    fn work(&mut self, heap: &mut Heap) -> bool {
        if self.made < self.elements {
            let input = *self.input.get_or_insert_with(|| heap.root(NIL));
            let turn = TURN.min(self.elements - self.made);
            for _ in 0..turn {
                let value = int(self.random.below(1 << 30));
                push(heap, input, value);
            }
            self.made += turn;
            if self.made == self.elements {
                self.future(heap, input, None);
            }
            return true;
        }
        let Some(at) = self.ready.pop_front() else {
            return false;
        };
        for _ in 0..TURN {
            if !self.element(heap, at) {
                return true;
            }
        }
        self.ready.push_back(at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::heap::Sizes;
    use super::*;

    #[test]
    fn it_sorts_through_collections_of_either_kind() {
        let sizes = Sizes {
            pages: 150,
            old_limit: 60,
            take_back: 4,
        };
        let mut heap = Heap::new(sizes, 1, 0);
        let mut sort = Sort::new(9000, Random::new(5));
        while sort.work(&mut heap) {
            while heap.step().is_some() {}
        }
        assert!(heap.work.collections.1 > 1, "{:?}", heap.work);
        let mut expected: Vec<u32> = {
            let mut random = Random::new(5);
            (0..9000).map(|_| random.below(1 << 30)).collect()
        };
        expected.sort_unstable();
        let mut found = Vec::new();
        let mut cell = heap.of(sort.sorted.expect("it is over"));
        while cell != NIL {
            found.push(number(heap.get(cell, 0)));
            cell = heap.get(cell, 1);
        }
        assert_eq!(found, expected);
    }
}
