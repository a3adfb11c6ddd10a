//! What read-ahead did for each memory object: of every process, and the largest of those gone.

use std::sync::atomic::Ordering::Relaxed;

use outpage_core::swap_cache::Objects;
use outpage_stats::{ObjectUses, Table, largest};

use super::{MemberId, Session};

impl Session {
    fn objects_of(&self, id: MemberId) -> &Table {
        &self.board().objects[id.index()]
    }

    /// Shows others the places of `objects` that `changed` has bits of, and the sum of the rest.
    ///
    /// # Panics
    /// When the process has not joined.
    pub fn publish_objects(&self, objects: &Objects, changed: u64) {
        let me = self.joined();
        let pid = self.member(me).pid.load(Relaxed);
        self.objects_of(me).publish(objects, changed, pid);
    }

    #[cfg(test)]
    pub(super) fn set_object(&self, id: MemberId, at: usize, object: &outpage_stats::ObjectUse) {
        self.objects_of(id).set(at, object);
    }

    /// Member `id` is gone: its objects join those of others that are.
    pub(super) fn bury_objects(&self, id: MemberId) {
        self.board().retired_objects.bury(self.objects_of(id));
    }

    /// The `most` objects of all processes that most pages were read of, those of processes that
    /// are gone included, and the sum of the others.
    #[must_use]
    pub fn object_uses(&self, most: usize) -> ObjectUses {
        let members = self.members().map(|view| self.objects_of(view.id));
        largest(members.chain([&self.board().retired_objects]), most)
    }
}
