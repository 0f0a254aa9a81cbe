"""Functions as jobs: `submit(function, ...)` and `Executor`.

    calls.py       a function and its arguments as a Secret, and the job that runs them
    call_runner.py the program that runs one call in a pod
    results.py     what a call returned or raised, read from the output of its pod
    function_job.py  the handles of `submit(function, ...)`
    executor.py    `Executor`, with the interface of concurrent.futures

Note: results are unpickled. Whoever may run pods in the namespace of a job could run code in the
process that reads its results.
"""
