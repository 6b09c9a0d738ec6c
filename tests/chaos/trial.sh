# A trial that reports unique numbers and notes its actions: trial.sh NOTES.
# Every line is one write. Notes are written after the outbox.
note="$1/${NNI_MANAGER_JOB%%:*}"
seq=$NNI_TRIAL_SEQ_ID
pause=0.$((seq % 7 + 1))
if [ $((seq % 12)) = 5 ]; then pause=3; fi
echo "started $$" >>"$note"
for step in 0 1 2; do
    sleep $pause
    echo "{\"type\": \"intermediate\", \"value\": $((seq * 10 + step))}" >>"$NNI_OUTBOX"
    echo "reported $((seq * 10 + step))" >>"$note"
done
echo "{\"type\": \"final\", \"value\": $seq}" >>"$NNI_OUTBOX"
echo "ended $seq" >>"$note"
