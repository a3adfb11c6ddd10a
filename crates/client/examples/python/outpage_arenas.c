/* CPython's arenas in a memory object of `outpage serve`: an arena that Python frees is marked, so that the server drops it in place of writing it, and taken back when
 * Python wants an arena again.
 *
 * cc -shared -fPIC $(python3-config --includes) -I crates/client/include crates/client/examples/python/outpage_arenas.c -L target/release \
 *    -loutpage_client -o outpage_arenas.so
 *
 *     import outpage_arenas
 *     outpage_arenas.install("/run/user/1000/outpage.socket", 1 << 30)
 *
 * What Python has before stays where it is. Objects of more than 512 bytes do not lie in arenas. A forked child has no part of the object and cannot go on: no `os.fork`,
 * no `multiprocessing` but "spawn". */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#include "outpage_client.h"

/* All of it is used under the interpreter's lock, as obmalloc asks for arenas. */
static struct {
    PyObjectArenaAllocator before;
    outpage_client *client;
    outpage_object *object;
    char *memory;
    size_t bytes;
    /* Bytes of an arena: all are equal, the first says how large. 0 before. */
    size_t arena;
    /* Arenas that were never used begin here. */
    size_t next;
    /* Arenas that were freed, by their numbers. */
    size_t *free, frees;
    uint64_t freed, again, dropped;
} here;

static size_t pages(size_t bytes) { return bytes / OUTPAGE_PAGE; }

static void *take(void *context, size_t size) {
    (void)context;
    if (here.arena == 0 && size > 0 && size % OUTPAGE_PAGE == 0) {
        here.free = malloc((here.bytes / size + 1) * sizeof *here.free);
        here.arena = here.free ? size : 0;
    }
    if (size != here.arena)
        return here.before.alloc(here.before.ctx, size);
    if (here.frees > 0) {
        size_t at = here.free[here.frees - 1];
        int64_t dropped = outpage_take_back(here.object, pages(at * size), pages(size), NULL);
        if (dropped < 0)
            return NULL;
        here.frees--;
        here.again += pages(size);
        here.dropped += (uint64_t)dropped;
        return here.memory + at * size;
    }
    if (here.next + size > here.bytes)
        return here.before.alloc(here.before.ctx, size);
    here.next += size;
    return here.memory + here.next - size;
}

static void give(void *context, void *arena, size_t size) {
    (void)context;
    size_t offset = (size_t)((uintptr_t)arena - (uintptr_t)here.memory);
    if ((uintptr_t)arena < (uintptr_t)here.memory || offset >= here.bytes) {
        here.before.free(here.before.ctx, arena, size);
        return;
    }
    outpage_mark(here.object, pages(offset), pages(size));
    here.free[here.frees++] = offset / here.arena;
    here.freed++;
}

static PyObject *refused(int status) {
    PyErr_Format(PyExc_OSError, "outpage: %s", outpage_error(status));
    return NULL;
}

static PyObject *install(PyObject *self, PyObject *arguments) {
    (void)self;
    const char *path;
    unsigned long long bytes;
    if (!PyArg_ParseTuple(arguments, "sK", &path, &bytes))
        return NULL;
    if (here.object) {
        PyErr_SetString(PyExc_RuntimeError, "outpage: installed already");
        return NULL;
    }
    int status = outpage_connect(path, 0, 100, &here.client);
    if (status != OUTPAGE_OK)
        return refused(status);
    bytes = bytes / OUTPAGE_PAGE * OUTPAGE_PAGE;
    status = outpage_object_create(here.client, bytes, &here.object);
    if (status != OUTPAGE_OK) {
        outpage_disconnect(here.client);
        here.client = NULL;
        return refused(status);
    }
    here.memory = outpage_map(here.object);
    here.bytes = bytes;
    PyObject_GetArenaAllocator(&here.before);
    PyObjectArenaAllocator ours = {NULL, take, give};
    PyObject_SetArenaAllocator(&ours);
    Py_RETURN_NONE;
}

static PyObject *counts(PyObject *self, PyObject *none) {
    (void)self;
    (void)none;
    unsigned long long arenas = here.arena ? here.next / here.arena : 0;
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "arenas", arenas, "freed", (unsigned long long)here.freed, "pages used again",
                         (unsigned long long)here.again, "of them dropped", (unsigned long long)here.dropped);
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, "install(socket, bytes): arenas come from an object of so many bytes from now on"},
    {"counts", counts, METH_NOARGS, "What was done with arenas so far"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "outpage_arenas", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_outpage_arenas(void);
PyMODINIT_FUNC PyInit_outpage_arenas(void) { return PyModule_Create(&module); }
