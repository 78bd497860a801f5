/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kajitori._step_gate: the idle path of a framework's callback, for which even a few lines of
 * Python are too much: after a step of training nothing of them is in the processor's caches, and
 * each line of memory that they touch is waited for.
 *
 * StepGate is a base class. Its next_step publishes the step that begins, counting its own calls,
 * and returns None when nothing is to be done: before the step and the time that the class was
 * told, and while the run's cell (struct kj_run_cell) says that nothing is pending. Else it calls
 * the method _look(step, ...) with the arguments that it was called with. So it can be a
 * framework's hook of any name: after_iteration = StepGate.next_step. Its on_train_batch_end does
 * the same for Keras, which says the number of the batch. It never gives up the interpreter's lock
 * and never calls into the library.
 *
 * An iteration of boosting is a step and an epoch: with _counts_epochs next_step publishes both.
 * And with a list as _kept it appends the attribute _kept_name of its first argument to it, for a
 * look that comes later. With an object as _owner a first argument is looked at, neither counted
 * nor kept, whose attribute _owner_name is another one: the callback is in another training.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <kajitori/run.h>

#include <stddef.h>
#include <time.h>

typedef struct step_gate {
    PyObject_HEAD kj_run_cell *cell; /* in `memory`; NULL: closed, each step is looked at */
    long long offset;                /* on_train_batch_end: step that begins when batch 0 has run */
    long long next;                  /* next_step: step that begins with the next call */
    long long look_step;             /* the first that is looked at */
    long long look_ns;               /* by the monotonic clock, from then on the next one is */
    PyObject *kept;                  /* next_step: list for what is kept of each step; or NULL */
    PyObject *kept_name;             /* an attribute of its first argument */
    PyObject *owner;                 /* next_step: what its first argument belongs to; or NULL */
    PyObject *owner_name;            /* likewise an attribute */
    char counts_epochs;              /* next_step: a step is an epoch, too */
    Py_buffer memory;
} step_gate;

static int is_idle(const step_gate *gate, long long step)
{
    struct timespec now;
    if (!gate->cell || step >= gate->look_step ||
        __atomic_load_n(&gate->cell->pending, __ATOMIC_RELAXED))
        return 0;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* to a few milliseconds, behind the exact one */
    return now.tv_sec * 1000000000LL + now.tv_nsec < gate->look_ns;
}

/* batch and logs, by place or by name. */
static int read_arguments(PyObject *const *args, Py_ssize_t n, PyObject *names, PyObject **values)
{
    static const char *const known[] = {"batch", "logs"};
    Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t k = 0; k < n && k < 2; k++)
        values[k] = args[k];
    for (Py_ssize_t k = 0; k < n_names; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        int at = 0;
        while (at < 2 && PyUnicode_CompareWithASCIIString(name, known[at]) != 0)
            at++;
        if (at == 2 || at < n) {
            PyErr_Format(PyExc_TypeError, "on_train_batch_end(batch, logs=None): argument %R",
                         name);
            return -1;
        }
        values[at] = args[n + k];
    }
    if (n > 2 || !values[0]) {
        PyErr_SetString(PyExc_TypeError, "on_train_batch_end(batch, logs=None)");
        return -1;
    }
    return 0;
}

static PyObject *on_train_batch_end(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                    PyObject *names)
{
    step_gate *gate = (step_gate *)self;
    PyObject *values[2] = {NULL, Py_None};
    if (read_arguments(args, n, names, values) < 0)
        return NULL;
    long long batch = PyLong_AsLongLong(values[0]);
    if (batch == -1 && PyErr_Occurred())
        return NULL;
    long long step = gate->offset + batch;
    if (!is_idle(gate, step))
        return PyObject_CallMethod(self, "_look", "LO", step, values[1]);
    __atomic_store_n(&gate->cell->step, step, __ATOMIC_RELAXED);
    Py_RETURN_NONE;
}

static PyObject *pack_arguments(long long step, PyObject *const *args, Py_ssize_t n)
{
    PyObject *all = PyTuple_New(n + 1);
    PyObject *first = all ? PyLong_FromLongLong(step) : NULL;
    if (!first || PyTuple_SetItem(all, 0, first) < 0) {
        Py_XDECREF(all);
        return NULL;
    }
    for (Py_ssize_t k = 0; k < n; k++)
        (void)PyTuple_SetItem(all, k + 1, Py_NewRef(args[k]));
    return all;
}

static PyObject *pack_names(PyObject *names, PyObject *const *values)
{
    Py_ssize_t n = names ? PyTuple_Size(names) : 0;
    PyObject *all = PyDict_New();
    for (Py_ssize_t k = 0; all && k < n; k++)
        if (PyDict_SetItem(all, PyTuple_GetItem(names, k), values[k]) < 0)
            Py_CLEAR(all);
    return all;
}

static PyObject *look(PyObject *self, long long step, PyObject *const *args, Py_ssize_t n,
                      PyObject *names)
{
    PyObject *method = PyObject_GetAttrString(self, "_look"), *result = NULL;
    PyObject *places = method ? pack_arguments(step, args, n) : NULL;
    PyObject *named = places ? pack_names(names, args + n) : NULL;
    if (named)
        result = PyObject_Call(method, places, named);
    Py_XDECREF(named);
    Py_XDECREF(places);
    Py_XDECREF(method);
    return result;
}

static int keep(const step_gate *gate, PyObject *thing)
{
    PyObject *value = PyObject_GetAttr(thing, gate->kept_name);
    int r = value ? PyList_Append(gate->kept, value) : -1;
    Py_XDECREF(value);
    return r;
}

/* -1: an exception. */
static int is_anothers(const step_gate *gate, PyObject *thing)
{
    PyObject *owner = PyObject_GetAttr(thing, gate->owner_name);
    int r = owner ? owner != gate->owner : -1;
    Py_XDECREF(owner);
    return r;
}

static PyObject *next_step(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    step_gate *gate = (step_gate *)self;
    int r = gate->owner && gate->owner != Py_None && n > 0 ? is_anothers(gate, args[0]) : 0;
    if (r != 0)
        return r < 0 ? NULL : look(self, gate->next, args, n, names);
    long long step = gate->next++;
    if (gate->kept && gate->kept != Py_None && n > 0 && keep(gate, args[0]) < 0)
        return NULL;
    if (!is_idle(gate, step))
        return look(self, step, args, n, names);
    __atomic_store_n(&gate->cell->step, step, __ATOMIC_RELAXED);
    if (gate->counts_epochs)
        __atomic_store_n(&gate->cell->epoch, step, __ATOMIC_RELAXED);
    Py_RETURN_NONE;
}

static PyObject *close_gate(PyObject *self, PyObject *unused)
{
    step_gate *gate = (step_gate *)self;
    (void)unused;
    if (gate->cell) {
        gate->cell = NULL;
        PyBuffer_Release(&gate->memory);
    }
    Py_RETURN_NONE;
}

static PyObject *open_gate(PyObject *self, PyObject *memory)
{
    step_gate *gate = (step_gate *)self;
    Py_XDECREF(close_gate(self, NULL));
    if (PyObject_GetBuffer(memory, &gate->memory, PyBUF_WRITABLE) < 0)
        return NULL;
    if ((size_t)gate->memory.len < sizeof *gate->cell) {
        PyBuffer_Release(&gate->memory);
        return PyErr_Format(PyExc_ValueError, "%zd bytes are no cell", gate->memory.len);
    }
    gate->cell = gate->memory.buf;
    Py_RETURN_NONE;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(close_gate(self, NULL));
    Py_CLEAR(((step_gate *)self)->kept);
    Py_CLEAR(((step_gate *)self)->kept_name);
    Py_CLEAR(((step_gate *)self)->owner);
    Py_CLEAR(((step_gate *)self)->owner_name);
    free_object(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"on_train_batch_end", (PyCFunction)(void (*)(void))on_train_batch_end,
     METH_FASTCALL | METH_KEYWORDS,
     "on_train_batch_end($self, batch, logs=None)\n--\n\nThe next step begins."},
    {"next_step", (PyCFunction)(void (*)(void))next_step, METH_FASTCALL | METH_KEYWORDS,
     "next_step($self, *args, **kwargs)\n--\n\nThe next step begins."},
    {"_open_gate", open_gate, METH_O, "The memory of a run's cell, to be held until _close_gate."},
    {"_close_gate", close_gate, METH_NOARGS, "From now on each step is looked at."},
    {NULL, NULL, 0, NULL}};

static PyMemberDef members[] = {
    {"_gate_offset", T_LONGLONG, offsetof(step_gate, offset), 0, NULL},
    {"_next_step", T_LONGLONG, offsetof(step_gate, next), 0, NULL},
    {"_look_step", T_LONGLONG, offsetof(step_gate, look_step), 0, NULL},
    {"_look_ns", T_LONGLONG, offsetof(step_gate, look_ns), 0, NULL},
    {"_kept", T_OBJECT, offsetof(step_gate, kept), 0, NULL},
    {"_kept_name", T_OBJECT, offsetof(step_gate, kept_name), 0, NULL},
    {"_owner", T_OBJECT, offsetof(step_gate, owner), 0, NULL},
    {"_owner_name", T_OBJECT, offsetof(step_gate, owner_name), 0, NULL},
    {"_counts_epochs", T_BOOL, offsetof(step_gate, counts_epochs), 0, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {Py_tp_doc, "The idle path of a callback."},
                              {0, NULL}};

static PyType_Spec spec = {.name = "kajitori._step_gate.StepGate",
                           .basicsize = sizeof(step_gate),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           .slots = slots};

static int fill_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int r = type ? PyModule_AddObjectRef(module, "StepGate", type) : -1;
    Py_XDECREF(type);
    return r;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_step_gate",
                             .m_slots = module_slots};

PyMODINIT_FUNC PyInit__step_gate(void);
PyMODINIT_FUNC PyInit__step_gate(void)
{
    return PyModuleDef_Init(&module);
}
