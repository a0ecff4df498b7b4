"""A GPU that left its worker for good, by an operator's word: kept for history, and left out of everything else."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0007_removals")]
    operations = [
        migrations.AddField(
            model_name="gpu",
            name="forgotten_at",
            field=models.DateTimeField(
                blank=True, help_text="an operator said that it is gone for good; the next report of it ends that", null=True
            ),
        ),
    ]
