import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('spaces', '0003_personal_tokens'),
    ]

    operations = [
        migrations.CreateModel(
            name='EscapedRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('path', models.CharField(help_text='without its query', max_length=200, verbose_name='path')),
                ('count', models.BigIntegerField(verbose_name='requests')),
                ('first_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='first seen')),
                ('last_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='last seen')),
                ('space', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='escaped', to='spaces.space', verbose_name='Space')),
            ],
            options={
                'verbose_name': 'escaped request',
                'verbose_name_plural': 'escaped requests',
                'ordering': ['-count', 'path'],
                'constraints': [models.UniqueConstraint(fields=('space', 'path'), name='one_row_per_escaped_path')],
            },
        ),
    ]
